from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.types import (
    AssistantTurn,
    Continue,
    Finish,
    StepEnvironment,
    StepResult,
    ToolContext,
    ToolOutcome,
    ToolStatus,
    UsageError,
)


def decide(text: str, *, cut: bool = False, **options: Any) -> Any:
    return TextActionAgent(**options).decide(AssistantTurn(text, cut=cut), {}, ToolContext())


@pytest.mark.parametrize(
    ("action", "text", "expected"),
    [
        ("text", " go north\n", "go north"),
        ("text", "think\ngo north", "think\ngo north"),
        ("last_line", "think\n go north \n", "go north"),
        ("last_line", "go north", "go north"),
        ("tag", "think <action> go north </action> done", "go north"),
        ("tag", "<action>a</action> no, <action>b</action>", "b"),
        ("tag", "<action>a <action>b</action>", "b"),
    ],
)
def test_the_action_is_found(action: str, text: str, expected: str) -> None:
    assert decide(text, action=action) == StepEnvironment(expected)


@pytest.mark.parametrize("text", ["", "  \n", "<action></action>", "go north", "</action> go <action>", "<action>go"])
def test_a_turn_without_an_action_gets_a_hint(text: str) -> None:
    decision = decide(text, action="tag")
    assert isinstance(decision, Continue)
    assert "<action>your action</action>" in decision.messages[0]["content"]
    assert isinstance(decide(" ", action="text"), Continue)


def test_a_cut_turn_ends_the_chain_unless_its_action_is_whole() -> None:
    assert decide("go nor", cut=True) == Finish("go nor")
    assert decide("hm\ngo nor", cut=True, action="last_line") == Finish("hm\ngo nor")
    assert decide("<action>go nor", cut=True, action="tag") == Finish("<action>go nor")
    assert decide("<action>go</action> and th", cut=True, action="tag") == StepEnvironment("go")


def test_another_tag() -> None:
    assert decide("<do>x</do><action>y</action>", action="tag", tag="do") == StepEnvironment("x")


@given(st.text(), st.sampled_from(["text", "last_line", "tag"]), st.booleans())
def test_no_text_is_too_strange(text: str, action: str, cut: bool) -> None:
    decision = decide(text, action=action, cut=cut)
    assert isinstance(decision, StepEnvironment | Continue | Finish)
    if isinstance(decision, StepEnvironment):
        assert decision.action
        assert decision.action in text


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'action'.*'last-line'.*last_line"):
        TextActionAgent(action="last-line")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tag"):
        TextActionAgent(action="tag", tag=" ")


def test_observations_are_user_messages_and_tools_are_not_listed() -> None:
    agent = TextActionAgent()
    assert agent.observe_step(StepResult("a room")) == [{"role": "user", "content": "a room"}]
    assert agent.observe([ToolOutcome("a", ToolStatus.OK, "1")]) == [{"role": "user", "content": "1"}]
    assert agent.show_tools is False
