"""Fenced-off places for code that nobody trusts."""

from agentfly_core.resources.sandboxes.docker import DockerProvider
from agentfly_core.resources.sandboxes.process import ProcessProvider

__all__ = ["DockerProvider", "ProcessProvider"]
