"""Many chains at once, token-exact: ``Engine``."""

from agentfly_core.rollout.engine import Engine

__all__ = ["Engine"]
