from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

from agentfly_core.types import AssistantTurn, ChainStatus, Message, Task, ToolOutcome, ToolStatus, Trajectory, Turn

settings.register_profile("rewards", deadline=None, max_examples=200)
settings.load_profile("rewards")

MakeChain = Callable[..., Trajectory]


def make_chain(
    response: str | None = "",
    fields: Mapping[str, Any] | None = None,
    *,
    turns: Sequence[Mapping[str, Any]] = (),
    messages: Sequence[Message] = (),
) -> Trajectory:
    """A finished chain. A turn is given by ``text``, ``reward`` and ``calls``: (tool, status) pairs."""
    made = []
    for i, turn in enumerate(turns):
        outcomes = tuple(ToolOutcome(name, ToolStatus(status), "") for name, status in turn.get("calls", ()))
        assistant = AssistantTurn(turn.get("text", ""))
        made.append(Turn(i, 0, (), "stop", assistant, outcomes, reward=turn.get("reward", 0.0)))
    return Trajectory(
        Task("task-1", fields=fields or {}),
        0,
        "group",
        "train",
        ChainStatus.COMPLETED,
        turns=tuple(made),
        messages=tuple(messages),
        final_response=response,
    )


@pytest.fixture(name="chain")
def chain_fixture() -> MakeChain:
    return make_chain
