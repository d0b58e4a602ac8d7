"""What becomes of a call where there is no sandbox, or no longer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from agentfly_tools_code.files import ListFiles, WriteFile
from agentfly_tools_code.interpreter import CodeInterpreter, code_interpreter
from agentfly_tools_code.shell import Shell

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.testing import call, play
from agentfly_core.types import ChainStatus, ToolContext, text_of


def test_without_resources_it_says_so() -> None:
    assert "no resources to lease one from" in asyncio.run(_say("1", ToolContext()))


def test_model_written_code_is_refused_where_only_limits_hold_unless_that_is_asked_for() -> None:
    manager = ResourceManager(InProcessCoordinator(), {"process": ProcessProvider(tier="rlimits")})
    turns = [call("code_interpreter", code="1 + 1"), "done"]
    try:
        refused = play(turns, tools=[CodeInterpreter()], resources=manager)
        allowed = play(turns, tools=[CodeInterpreter(sandbox={"min_isolation": "process"})], resources=manager)
    finally:
        asyncio.run(manager.close())
    assert refused.status is ChainStatus.ENVIRONMENT_ERROR
    assert "demands isolation SANDBOX" in str(refused.error)
    assert text_of(allowed.turns[0].outcomes[0].content) == "2"


EVERY_TOOL = [
    ("code_interpreter", CodeInterpreter, {"code": "1"}),
    ("shell", Shell, {"command": "true"}),
    ("write_file", WriteFile, {"path": "f", "content": "x"}),
    ("list_files", ListFiles, {}),
]


@pytest.mark.parametrize(("name", "make", "arguments"), EVERY_TOOL)
def test_a_sandbox_that_cannot_be_had_is_nothing_for_the_model(
    name: str, make: Any, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("docker")
    provider = DockerProvider(base_url="tcp://127.0.0.1:1")  # a port on which nothing listens
    manager = ResourceManager(InProcessCoordinator(), {"docker": provider})
    try:
        turns = [call(name, **arguments), "done"]
        trajectory = play(turns, tools=[make(sandbox={"kind": "docker"})], resources=manager)
    finally:
        asyncio.run(manager.close())
    assert trajectory.status is ChainStatus.ENVIRONMENT_ERROR
    assert str(trajectory.error).startswith("no Docker engine answers at tcp://127.0.0.1:1: start one")
    assert not trajectory.scored
    assert trajectory.turns[0].observation == ()
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_sandbox_that_is_gone_is_told_and_replaced(resources: ResourceManager) -> None:
    async def main() -> list[str]:
        async with contextlib.AsyncExitStack() as scope:
            context = ToolContext(resources=resources, scope=scope)
            shown = [await _say("x = 1", context)]
            (held,) = context.state["agentfly_tools_code"].values()
            await resources._instances.providers["process"].stop(held.held())
            shown += [await _say("x", context), await _say("2", context)]
            return shown

    first, lost, after = asyncio.run(main())
    assert first == "[no output]"
    assert lost == (
        "[the sandbox is gone with all files that were in it: it was stopped. The next call begins in a new, empty one]"
    )
    assert after == "2"


async def _say(code: str, context: ToolContext) -> str:
    return text_of((await code_interpreter.call({"code": code}, context)).content)
