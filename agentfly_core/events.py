"""What a streamed run tells its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentfly_core.plugins import Plugins
from agentfly_core.types import ToolOutcome, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """A turn was sampled and acted upon."""

    task_id: str
    chain_index: int
    turn: Turn

    @property
    def text(self) -> str:
        """What the model said outside of calls and reasoning."""
        return self.turn.assistant.content


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A tool call of turn ``turn`` ended."""

    task_id: str
    chain_index: int
    turn: int
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """A chain ended and was scored; the last event of its chain."""

    trajectory: Trajectory


Event: TypeAlias = TurnEvent | ToolEvent | FinishedEvent


class Notifier:
    """Hands an engine's notices on to the plugins and to whoever streams the chain's group."""

    def __init__(self, plugins: Plugins, listeners: Mapping[str, Callable[[Event], None]]) -> None:
        self._plugins = plugins
        self._listeners = listeners

    def __call__(self, hook: str, **about: Any) -> None:
        self._plugins.notify(hook, **about)
        tell = self._listeners.get(about.get("group", ""))
        if tell is not None and hook == "turn_finished":
            tell(TurnEvent(about["task"].id, about["chain_index"], about["turn"]))
        elif tell is not None and hook == "tool_called":
            tell(ToolEvent(about["task"].id, about["chain_index"], about["turn"], about["outcome"]))
