"""Worlds to act in: helpers for those who write one. The contract is ``agentfly_core.types.Environment``."""

from agentfly_core.environments.actions import ActionTool
from agentfly_core.environments.text import TextEnvironment

__all__ = ["ActionTool", "TextEnvironment"]
