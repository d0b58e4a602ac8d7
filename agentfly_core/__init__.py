"""AgentFly trains language-model agents with reinforcement learning.

The names below are imported on first use, so that ``import agentfly_core`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentfly_core.api import HFAgent, RunResult
    from agentfly_core.hookspecs import PLUGIN_API_VERSION, hookimpl
    from agentfly_core.rewards import reward
    from agentfly_core.tools import tool
    from agentfly_core.types import RewardResult, Task, ToolContext, ToolResult, Trajectory

__version__ = "0.1.0"

_EXPORTS = {
    "HFAgent": "agentfly_core.api",
    "RunResult": "agentfly_core.api",
    "PLUGIN_API_VERSION": "agentfly_core.hookspecs",
    "hookimpl": "agentfly_core.hookspecs",
    "reward": "agentfly_core.rewards",
    "tool": "agentfly_core.tools",
    "RewardResult": "agentfly_core.types",
    "Task": "agentfly_core.types",
    "ToolContext": "agentfly_core.types",
    "ToolResult": "agentfly_core.types",
    "Trajectory": "agentfly_core.types",
}
__all__ = [
    "PLUGIN_API_VERSION",
    "HFAgent",
    "RewardResult",
    "RunResult",
    "Task",
    "ToolContext",
    "ToolResult",
    "Trajectory",
    "hookimpl",
    "reward",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
