"""Chains of the real engine over real sandboxes of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pytest
from agentfly_tools_code.interpreter import CodeInterpreter, code_interpreter

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.sandboxes.process import ProcessProvider
from agentfly_core.testing import call, play
from agentfly_core.types import Isolation, SamplingParams, Tool, ToolOutcome, text_of

LONG = SamplingParams(max_tokens=200_000)


@pytest.fixture(scope="session")
def resources() -> Iterator[ResourceManager]:
    """Sandboxes for this session's tests; none may be leased when they are over."""
    provider = ProcessProvider()
    if provider.isolation < Isolation.SANDBOX:
        reason = f"no sandbox works here, only {provider.report().mechanism}: install bubblewrap"
        if os.environ.get("REQUIRE_SANDBOXES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    manager = ResourceManager(InProcessCoordinator({"process": 8}), {"process": provider}, max_idle=3)
    yield manager
    assert [row.granted for row in asyncio.run(manager.coordinator.status()) if row.kind == "process"] in ([], [0])
    asyncio.run(manager.close())


class Chain(Protocol):
    """Plays calls, one a turn, in one chain."""

    def __call__(self, *calls: str, tools: Sequence[Tool], **options: Any) -> list[ToolOutcome]: ...


@pytest.fixture
def chain(resources: ResourceManager) -> Chain:
    """The outcomes of the calls of one chain."""

    def run(*calls: str, tools: Sequence[Tool], **options: Any) -> list[ToolOutcome]:
        options = {"resources": resources, "max_turns": len(calls) + 1, "timeout": 240.0, "sampling": LONG, **options}
        trajectory = play([*calls, "done"], tools=tools, **options)
        assert trajectory.error is None, trajectory.error
        return [outcome for turn in trajectory.turns for outcome in turn.outcomes]

    return run


class Cells(Protocol):
    """Runs cells in one session."""

    def __call__(self, *cells: str, tool: CodeInterpreter = ..., **options: Any) -> list[str]: ...


@pytest.fixture
def cells(chain: Chain) -> Cells:
    """What the model is shown after each cell."""

    def run(*cells: str, tool: Any = code_interpreter, **options: Any) -> list[str]:
        calls = [call(tool.name, code=cell) for cell in cells]
        return [text_of(outcome.content) for outcome in chain(*calls, tools=[tool], **options)]

    return run
