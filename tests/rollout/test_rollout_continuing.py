"""Agents whose observations go on within the turn that was being sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.testing import CharacterTemplate, CharacterTokenizer, ScriptedBackend
from agentfly_core.tools import tool
from agentfly_core.types import (
    AssistantTurn,
    CallTools,
    ChainStatus,
    Continue,
    Decision,
    Finish,
    SamplingParams,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    UsageError,
)


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


class Asking(ToolCallingAgent):
    """``[text]`` asks for an echo, which goes on within the turn; a turn without it finishes."""

    name = "asking"
    continues = True
    stop_texts = ("]",)

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        if turn.content.endswith("!"):
            return Continue(({"role": "user", "content": "Do "}, {"role": "user", "content": "ask."}))
        if not turn.content.endswith("]"):
            return Finish(turn.content)
        return CallTools((ToolCall("echo", {"text": turn.content[turn.content.index("[") + 1 : -1]}),))

    def observe(self, outcomes: Sequence[ToolOutcome]) -> Any:
        return [{"role": "tool", "content": f"={o.content};"} for o in outcomes]


def play(kit: Any, *turns: Any, **options: Any) -> tuple[Any, ScriptedBackend]:
    backend = ScriptedBackend(list(turns), CharacterTokenizer())
    options = {"agent": Asking(), "template": CharacterTemplate(), "tools": [echo], **options}
    return kit.play(backend, **options), backend


def spelled(segment: Any) -> str:
    """What was sampled, in brackets beside what was not."""
    text, decode = "", CharacterTemplate().decode
    for start, end in zip([0, *(s.end for s in segment.spans)], [*(s.start for s in segment.spans), None], strict=True):
        text += decode(segment.token_ids[start:end])
        text += "".join(f"⟦{decode(segment.token_ids[s.start : s.end])}⟧" for s in segment.spans if s.start == end)
    return text.partition("<assistant>")[2]


def test_an_observation_goes_on_within_the_turn(kit: Any) -> None:
    trajectory, backend = play(kit, "I ask [a<end>] and never see this", "then [bc]...", "Done.")
    (segment,) = trajectory.segments
    assert spelled(segment) == "⟦I ask [a<end>]⟧=a<end>;⟦then [bc]⟧=bc;⟦Done.<end>⟧"
    assert segment.token_ids.count(0) == 1 + 2  # of the system and user messages, and of the last turn
    assert [m["content"] for m in trajectory.messages[1:]] == [
        "I ask [a<end>]",
        "=a<end>;",
        "then [bc]",
        "=bc;",
        "Done.",
    ]
    assert [turn.finish_reason for turn in trajectory.turns] == ["stop", "stop", "stop"]
    assert not any(turn.cut for turn in trajectory.turns)
    assert trajectory.status is ChainStatus.COMPLETED
    for span, request in zip(segment.spans, backend.requests, strict=True):
        assert tuple(request.prompt_ids) == segment.token_ids[: span.start]
        assert request.sampling.stop == ("]",)


def test_a_turn_that_the_end_token_closed_is_answered_as_usual(kit: Any) -> None:
    trajectory, _ = play(kit, "I ask!", "again [x]", "Done.")
    assert spelled(trajectory.segments[0]) == (
        "⟦I ask!<end>⟧<user>Do <end><user>ask.<end><assistant>⟦again [x]⟧=x;⟦Done.<end>⟧"
    )


def test_a_turn_that_the_limit_cut_goes_on_where_it_stopped(kit: Any) -> None:
    trajectory, _ = play(kit, "abcd!efg", "Done.", sampling=SamplingParams(max_tokens=5))
    assert trajectory.turns[0].cut
    assert spelled(trajectory.segments[0]) == "⟦abcd!⟧Do ask.⟦Done.⟧"
    assert trajectory.status is ChainStatus.MAX_TOKENS


def test_the_agents_stop_texts_join_those_asked_for(kit: Any) -> None:
    _, backend = play(kit, "Done. Or", sampling=SamplingParams(stop=("Or", "]")))
    assert backend.requests[0].sampling.stop == ("Or", "]")
    _, backend = play(kit, "Done. Or", sampling=SamplingParams(stop=("Or",)))
    assert backend.requests[0].sampling.stop == ("Or", "]")


def test_what_leaves_no_room_is_not_kept(kit: Any) -> None:
    (whole, _), limit = play(kit, "I ask [abc]", "Done."), 0
    first = whole.segments[0].spans[0]
    limit = first.end + len("=abc;")
    trajectory, backend = play(kit, "I ask [abc]", "Done.", max_tokens=limit)
    assert trajectory.status is ChainStatus.MAX_TOKENS
    assert len(backend.requests) == 1
    assert len(trajectory.segments[0].token_ids) == first.end
    trajectory, backend = play(kit, "I ask [abc]", "Done.", max_tokens=limit + 1)
    assert spelled(trajectory.segments[0]) == "⟦I ask [abc]⟧=abc;⟦D⟧"


def test_template_history_is_refused(kit: Any) -> None:
    with pytest.raises(UsageError, match=r"model\.history: template .*agent 'asking' .*use history: append"):
        kit.engine(kit.scripted("x"), agent=Asking(), template=kit.CharTemplate("template"))


class Picky(Asking):
    def check_tools(self, tools: Mapping[str, Tool]) -> None:
        if "echo" not in tools:
            raise UsageError("agent.tools: there must be an echo")


def test_an_agent_may_refuse_its_tools_before_anything_starts(kit: Any) -> None:
    with pytest.raises(UsageError, match="there must be an echo"):
        kit.engine(kit.scripted("x"), agent=Picky(), template=CharacterTemplate())
    assert play(kit, "Done.", agent=Picky())[0].status is ChainStatus.COMPLETED


def test_an_image_within_a_turn_is_refused(kit: Any) -> None:
    class Showing(Asking):
        def observe(self, outcomes: Sequence[ToolOutcome]) -> Any:
            return [{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": b""}]}]

    trajectory, _ = play(kit, "I ask [x]", "Done.", agent=Showing())
    assert trajectory.status is ChainStatus.ABORTED
    assert "an observation within a turn carries text only" in (trajectory.error or "")
