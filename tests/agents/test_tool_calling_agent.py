from __future__ import annotations

from typing import Any

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.tools import tool
from agentfly_core.types import (
    AssistantTurn,
    CallError,
    CallErrorKind,
    CallTools,
    Continue,
    Finish,
    Observation,
    StepResult,
    Task,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolStatus,
)


@tool
def search(query: str, limit: int = 3) -> str:
    """Search."""
    return query


@tool
def lookup(key: str) -> str:
    """Look up."""
    return key


TOOLS = {"search": search, "lookup": lookup}
BAD = CallError(CallErrorKind.UNTERMINATED, "Error: the call does not end")


def decide(turn: AssistantTurn, agent: ToolCallingAgent | None = None, tools: Any = TOOLS) -> Any:
    return (agent or ToolCallingAgent()).decide(turn, tools, ToolContext())


def test_a_turn_without_calls_is_the_final_response() -> None:
    assert decide(AssistantTurn("\n\nIt is 4. ")) == Finish("It is 4.")


def test_good_calls_are_run_in_order() -> None:
    calls = (ToolCall("search", {"query": "a"}, "1"), ToolCall("lookup", {"key": "b"}, "2"))
    assert decide(AssistantTurn("", calls=calls)) == CallTools(calls)


def test_an_unknown_tool_is_named_with_the_nearest_known_ones() -> None:
    decision = decide(AssistantTurn("", calls=(ToolCall("serach", {"query": "a"}, "7"),)))
    (error,) = decision.calls
    assert (error.kind, error.name, error.id) == (CallErrorKind.UNKNOWN_TOOL, "serach", "7")
    assert error.message == "Error: there is no tool 'serach'. Did you mean search?"


def test_an_unknown_tool_that_resembles_none_gets_the_list() -> None:
    (error,) = decide(AssistantTurn("", calls=(ToolCall("xyz", {}),))).calls
    assert error.message == "Error: there is no tool 'xyz'. The tools are: lookup, search."
    (error,) = decide(AssistantTurn("", calls=(ToolCall("xyz", {}),)), tools={}).calls
    assert "there are no tools" in error.message


def test_arguments_that_do_not_fit_become_an_error_for_the_model() -> None:
    (error,) = decide(AssistantTurn("", calls=(ToolCall("search", {"limit": "many"}, "3"),))).calls
    assert (error.kind, error.name, error.id) == (CallErrorKind.INVALID_ARGUMENTS, "search", "3")
    assert "query" in error.message
    assert "limit" in error.message


def test_good_calls_beside_a_malformed_one_are_run() -> None:
    good = ToolCall("lookup", {"key": "k"})
    assert decide(AssistantTurn("", calls=(BAD, good))) == CallTools((BAD, good))
    assert decide(AssistantTurn("", calls=(BAD,))) == CallTools((BAD,))


def test_a_cut_turn_goes_on_only_with_a_whole_call() -> None:
    good = ToolCall("lookup", {"key": "k"})
    assert decide(AssistantTurn("", calls=(good, BAD), cut=True)) == CallTools((good, BAD))
    assert decide(AssistantTurn("so far", calls=(BAD,), cut=True)) == Finish("so far")
    assert decide(AssistantTurn("so far", cut=True), ToolCallingAgent(reminder="Call.")) == Finish("so far")


def test_a_reminder_lets_a_turn_without_calls_go_on() -> None:
    decision = decide(AssistantTurn("hm"), ToolCallingAgent(reminder="Use a tool."))
    assert decision == Continue(({"role": "user", "content": "Use a tool."},))


def test_outcomes_become_tool_messages_in_the_order_of_the_calls() -> None:
    outcomes = [ToolOutcome("a", ToolStatus.OK, "1", call_id="x"), ToolOutcome("b", ToolStatus.FAILED, "Error: 2")]
    assert ToolCallingAgent().observe(outcomes) == [
        {"role": "tool", "content": "1", "name": "a", "tool_call_id": "x"},
        {"role": "tool", "content": "Error: 2", "name": "b"},
    ]
    assert ToolCallingAgent().observe_step(StepResult("a door")) == [{"role": "user", "content": "a door"}]


def test_the_opening_is_system_prompt_task_and_first_observation() -> None:
    agent = ToolCallingAgent(system_prompt="Be brief.")
    task = Task("t", ({"role": "user", "content": "Go."},))
    assert agent.start(task, Observation("A room."), {}) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "user", "content": "A room."},
    ]
    own = Task("t", ({"role": "system", "content": "Mine."},))
    assert agent.start(own, None, {}) == [{"role": "system", "content": "Mine."}]
    assert ToolCallingAgent().start(Task("t"), None, {}) == []
