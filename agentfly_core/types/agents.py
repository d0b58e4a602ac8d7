"""What an agent may decide after a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentfly_core.types.messages import CallError, Message, ToolCall


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls. Errors among them are handed back to the model in their place."""

    calls: tuple[ToolCall | CallError, ...]


@dataclass(frozen=True, slots=True)
class StepEnvironment:
    """Send a raw text action to the environment."""

    action: str


@dataclass(frozen=True, slots=True)
class Continue:
    """Hand these messages back to the model and let it go on (a hint after a malformed turn, say)."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The chain is over; ``response`` is what rewards see as the final response."""

    response: str


Decision: TypeAlias = CallTools | StepEnvironment | Continue | Finish
