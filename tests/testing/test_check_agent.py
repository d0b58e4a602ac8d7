"""``check_agent`` passes good agents and finds what is wrong with others."""

from __future__ import annotations

import pytest

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.testing import check_agent
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator
from agentfly_core.types import AssistantTurn, CallTools, Continue, Finish, ToolCall, UsageError


@pytest.mark.parametrize(
    "agent",
    [
        ToolCallingAgent(),
        ToolCallingAgent(system_prompt="Be brief.", reminder="Use a tool."),
        TextActionAgent(),
        TextActionAgent(action="last_line"),
        TextActionAgent(action="tag", system_prompt="Act."),
    ],
)
def test_built_in_agents_pass(agent):
    check_agent(agent)
    check_agent(agent, tools=[calculator, answer], turns=["go north", AssistantTurn("", "Hm.")])


def test_what_is_no_agent(found):
    with found("it lacks start, decide"):
        check_agent(type("Nothing", (), {"name": "nothing"})())
    with found("it lacks "):
        check_agent(ToolCallingAgent)  # type: ignore[arg-type]


class Remembering(ToolCallingAgent):
    """Keeps the last turn, of whichever chain."""

    last = None

    def decide(self, turn, tools, context):
        self.last, last = turn, self.last
        return Finish("again") if last == turn else super().decide(turn, tools, context)


class Counting(ToolCallingAgent):
    number = 0

    def start(self, task, observation, tools):
        self.number += 1
        return [{"role": "user", "content": f"{self.number} {observation and observation.content}"}]


class Brittle(ToolCallingAgent):
    def decide(self, turn, tools, context):
        return Finish(turn.content[turn.content.index("<answer>") :])


class Trusting(ToolCallingAgent):
    def decide(self, turn, tools, context):
        calls = tuple(c for c in turn.calls if isinstance(c, ToolCall))
        return CallTools(calls) if calls else Finish("")


class Blind(ToolCallingAgent):
    """Shows of several outcomes only the first, and no observation."""

    def start(self, task, observation, tools):
        return super().start(task, None, tools)

    def observe(self, outcomes):
        return super().observe(outcomes[:1])

    def observe_step(self, result):
        return [{"role": "user", "content": "Next."}]


class Quiet(ToolCallingAgent):
    def decide(self, turn, tools, context):
        return Continue(())


class Loose(ToolCallingAgent):
    name = ""
    continues = 1
    stop_texts = "</answer>"


class Choosy(ToolCallingAgent):
    def check_tools(self, tools):
        raise UsageError("never these")


class Hoarding(ToolCallingAgent):
    def start(self, task, observation, tools):
        task.messages[0]["content"] += "!"
        return super().start(task, observation, tools)


@pytest.mark.parametrize(
    ("agent", "texts"),
    [
        (Remembering(), ["a second call decides otherwise"]),
        (Counting(), ["a second call opens otherwise"]),
        (Brittle(), ["it raised ValueError"]),
        (Trusting(), ["it calls ToolCall(name='no_such_tool'"]),
        (Blind(), ["the model is not shown the observation", "the model is not shown every outcome"]),
        (Quiet(), ["it gave []"]),
        (Loose(), ["'' is no name", "it is 1", "they are '</answer>'"]),
        (Choosy(), ["never these"]),
        (Hoarding(), ["it changed the task"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_agents_are_found(agent, texts, found):
    with found(*texts):
        check_agent(agent, tools=[calculator])


def test_a_decision_that_is_none(found):
    class Vague(ToolCallingAgent):
        def decide(self, turn, tools, context):
            return turn.content

    with found("it returned 'Just words.'"):
        check_agent(Vague())
