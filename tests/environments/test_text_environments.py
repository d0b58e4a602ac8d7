from __future__ import annotations

import asyncio

import pytest

from agentfly_core.environments import ActionTool, TextEnvironment
from agentfly_core.types import (
    Environment,
    InvalidArguments,
    Observation,
    StepResult,
    Task,
    Tool,
    ToolContext,
    ToolStatus,
)


class Doors(TextEnvironment):
    """Three doors; one is right."""

    @staticmethod
    def tools():
        number = {"type": "integer", "minimum": 1, "maximum": 3}
        return [ActionTool("open", "Open a door.", {"door": number}, "open door {door}"), ActionTool("look", "Look.")]

    def begin(self, task: Task, seed: int) -> str:
        self.right = seed % 3 + 1
        return "Three doors."

    def act(self, action: str) -> StepResult:
        if action == "look":
            return StepResult("Three doors.")
        won = action == f"open door {self.right}"
        return StepResult("You win." if won else "A wall.", reward=float(won), terminated=won)


class Broken(Doors):
    def act(self, action):
        raise KeyError("lost")


def test_a_text_environment_is_an_environment():
    async def main():
        world = Doors()
        assert isinstance(world, Environment)
        assert await world.reset(Task("t"), 4) == Observation("Three doors.")
        assert await world.step("open door 1") == StepResult("A wall.")
        assert await world.step("open door 2") == StepResult("You win.", reward=1.0, terminated=True)
        assert await world.step("open door 2") == StepResult("The episode is over.", terminated=True)
        assert await world.reset(Task("t"), 4) == Observation("Three doors.")
        assert await world.step("look") == StepResult("Three doors.")
        await world.close()
        await world.close()

    asyncio.run(main())


def test_an_action_tool_steps_the_environment_of_its_context():
    async def main():
        world = Doors()
        await world.reset(Task("t"), 0)
        tool = world.tools()[0]
        assert isinstance(tool, Tool)
        assert tool.schema()["function"] == {
            "name": "open",
            "description": "Open a door.",
            "parameters": {
                "type": "object",
                "properties": {"door": {"type": "integer", "minimum": 1, "maximum": 3}},
                "required": ["door"],
            },
        }
        context = ToolContext(environment=world)
        wall, win = await tool.call({"door": 2}, context), await tool.call({"door": 1}, context)
        assert (wall.status, wall.content, wall.final) == (ToolStatus.OK, "A wall.", False)
        assert (win.status, win.content, win.final) == (ToolStatus.OK, "You win.", True)
        await world.reset(Task("t"), 0)
        look = await world.tools()[1].call({}, context)
        assert look.content == "Three doors."

    asyncio.run(main())


@pytest.mark.parametrize("arguments", [{}, {"door": 4}, {"door": "1"}, {"door": 1, "key": 2}, {"door": None}])
def test_arguments_that_do_not_fit(arguments):
    tool = Doors.tools()[0]
    with pytest.raises(InvalidArguments, match="open"):
        tool.check_arguments(arguments)
    outcome = asyncio.run(tool.call(arguments, ToolContext(environment=Doors())))
    assert outcome.status is ToolStatus.INVALID_ARGUMENTS


def test_what_goes_wrong_is_an_outcome():
    tool = Doors.tools()[0]
    outcome = asyncio.run(tool.call({"door": 1}, ToolContext()))
    assert (outcome.status, outcome.content) == (
        ToolStatus.FAILED,
        "Error: open needs an environment, and this chain has none",
    )
    outcome = asyncio.run(tool.call({"door": 1}, ToolContext(environment=Broken())))
    assert (outcome.status, outcome.content) == (ToolStatus.FAILED, "Error: open failed: KeyError: 'lost'")
