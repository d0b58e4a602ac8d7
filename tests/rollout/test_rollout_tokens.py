"""The token contract as the engine keeps it: what is trained is what the backend was sent and what it sampled."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.tools import tool
from agentfly_core.types import ChainStatus, Continue, Finish, SamplingParams, Task, derive_seed


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


def test_every_request_is_the_segment_so_far(kit: Any) -> None:
    backend = kit.scripted('!echo {"text": "<end>"}', '!echo {"text": "b"}\n!echo {"text": "c"}', "bye")
    trajectory = kit.play(backend, tools=[echo])
    (segment,) = trajectory.segments
    for span, request in zip(segment.spans, backend.requests, strict=True):
        assert tuple(request.prompt_ids) == segment.token_ids[: span.start]
    for turn, span in zip(trajectory.turns, segment.spans, strict=True):
        assert segment.token_ids[span.start : span.end] == turn.token_ids
        assert segment.logprobs[span.start : span.end] == tuple(-(i + 1) / 8 for i in range(len(turn.token_ids)))
    assert [i for i, m in enumerate(segment.action_mask) if m] == [
        i for span in segment.spans for i in range(span.start, span.end)
    ]
    assert segment.token_ids[-1] == kit.END
    assert trajectory.status is ChainStatus.COMPLETED


def test_few_shot_assistant_messages_are_never_under_the_mask(kit: Any) -> None:
    messages = (
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
    )
    with kit.engine(kit.scripted("4")) as engine:
        (segment,) = engine.submit(Task("t", messages), 0, "g").result(30).segments
    assert sum(segment.action_mask) == 2
    assert segment.action_mask[-2:] == (1, 1)


def test_a_cut_turn_gets_its_end_token_outside_the_mask(kit: Any) -> None:
    cut = kit.backend_turn('!echo {"text": "a"}\nand th', cut=True)
    trajectory = kit.play(kit.scripted(cut, "bye"), tools=[echo])
    (segment,) = trajectory.segments
    first = segment.spans[0]
    assert trajectory.turns[0].cut
    assert trajectory.turns[0].assistant.cut
    assert segment.token_ids[first.end] == kit.END
    assert segment.action_mask[first.end - 1 : first.end + 1] == (1, 0)
    assert trajectory.status is ChainStatus.COMPLETED


def test_template_history_opens_a_segment_where_the_prefix_breaks(kit: Any) -> None:
    class Asking:
        """Asks once for more, then finishes."""

        name = "asking"

        def start(self, task: Any, observation: Any, tools: Any) -> Any:
            return list(task.messages)

        def decide(self, turn: Any, tools: Any, context: Any) -> Any:
            if "last" in turn.content:
                return Finish(turn.content)
            return Continue(({"role": "user", "content": "More."},))

    backend = kit.scripted("(thought) one", "two", "last")
    trajectory = kit.play(backend, agent=Asking(), template=kit.CharTemplate("template"))
    first, second = trajectory.segments
    assert [turn.segment for turn in trajectory.turns] == [0, 1, 1]
    assert [span.turn for span in first.spans + second.spans] == [0, 1, 2]
    assert first.token_ids == (*backend.requests[0].prompt_ids, *trajectory.turns[0].token_ids)
    assert second.token_ids[: second.prompt_len] == tuple(backend.requests[1].prompt_ids)
    assert second.token_ids == (*backend.requests[2].prompt_ids, *trajectory.turns[2].token_ids)
    text = kit.CharTemplate().decode(second.token_ids[: second.prompt_len])
    assert "thought" not in text
    assert text == "<user>Go.<end><assistant> one<end><user>More.<end><assistant>"
    assert sum(sum(s.action_mask) for s in trajectory.segments) == sum(len(t.token_ids) for t in trajectory.turns)
    # In append history the same chain is one segment.
    assert len(kit.play(kit.scripted("(thought) one", "two", "last"), agent=Asking()).segments) == 1


TURN = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="!"), max_size=12).map(lambda t: f"{t}\n!echo {{}}"),
    st.text(max_size=8).map(lambda t: f'!echo {{"text": "{t}"}}'),
    st.sampled_from(["!echo {", "!nothing {}", '!echo {"text": "x"}\n!echo {"text": "<end>y"}', "!echo [1]"]),
)


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(TURN, min_size=1, max_size=5), cut=st.booleans(), history=st.sampled_from(["append", "template"]))
def test_mask_and_ids_over_random_chains(kit: Any, turns: list[str], cut: bool, history: str) -> None:
    script = [kit.backend_turn(text, cut=cut and index % 2 == 1) for index, text in enumerate(turns)]
    backend = kit.scripted(*script, "bye", "bye", "bye")
    trajectory = kit.play(backend, tools=[echo], template=kit.CharTemplate(history))
    sampled = [token for turn in trajectory.turns for token in turn.token_ids]
    spans = [(segment, span) for segment in trajectory.segments for span in segment.spans]
    assert [span.turn for _, span in spans] == list(range(len(trajectory.turns)))
    assert [t for s in trajectory.segments for t, m in zip(s.token_ids, s.action_mask, strict=True) if m] == sampled
    for (segment, span), request in zip(spans, backend.requests, strict=True):
        assert segment.token_ids[: span.start] == tuple(request.prompt_ids)


def test_the_turn_limit_shrinks_to_what_the_segment_has_left(kit: Any) -> None:
    prompt = 6  # <user>Go.<end><assistant>
    backend = kit.scripted('!echo {"text": "a"}', "x" * 50)
    length = len('!echo {"text": "a"}') + 1
    limit = prompt + length + 4 + 10  # <tool>a<end><assistant>, then ten more
    trajectory = kit.play(backend, tools=[_Unlisted()], max_tokens=limit, sampling=SamplingParams(max_tokens=30))
    assert [r.sampling.max_tokens for r in backend.requests] == [30, 10]
    assert trajectory.status is ChainStatus.MAX_TOKENS
    assert trajectory.scored
    assert trajectory.turns[1].cut
    assert len(trajectory.segments[0].token_ids) == limit


class _Unlisted:
    """The tool ``echo``, kept out of the prompt by a template that lists no tools: its name is empty there."""

    name = "echo"
    description = ""
    parameters: ClassVar[dict[str, Any]] = {}
    exclusive = False

    def schema(self) -> Any:
        return {"type": "function", "function": {"name": ""}}

    def check_arguments(self, arguments: Any) -> Any:
        return arguments

    async def call(self, arguments: Any, context: Any) -> Any:
        return await echo.call(arguments, context)


def test_an_observation_that_leaves_no_room_ends_the_chain_and_is_not_kept(kit: Any) -> None:
    backend = kit.scripted('!echo {"text": "aaaaaaaaaa"}', "never")
    trajectory = kit.play(backend, tools=[echo], max_tokens=50)
    assert trajectory.status is ChainStatus.MAX_TOKENS
    assert trajectory.scored
    assert len(backend.requests) == 1
    (turn,) = trajectory.turns
    assert turn.outcomes[0].content == "aaaaaaaaaa"
    assert turn.observation == ()
    assert trajectory.segments[0].token_ids[-1] == kit.END
    assert trajectory.messages[-1]["role"] == "assistant"


@pytest.mark.parametrize(("options", "backend_options"), [({"max_tokens": 6}, {}), ({}, {"max_model_len": 6})])
def test_a_prompt_without_room_is_refused_before_sampling(kit: Any, options: Any, backend_options: Any) -> None:
    backend = kit.scripted("never", **backend_options)
    trajectory = kit.play(backend, **options)
    assert backend.requests == []
    assert (trajectory.status, trajectory.scored, trajectory.turns) == (ChainStatus.MAX_TOKENS, False, ())
    assert trajectory.segments == ()
    assert "the prompt has 6 tokens" in (trajectory.error or "")
    assert trajectory.unscored_reason == "nothing was sampled"


def test_a_prompt_with_room_for_one_token_is_sampled(kit: Any) -> None:
    trajectory = kit.play(kit.scripted("xyz"), max_tokens=7)
    assert trajectory.status is ChainStatus.MAX_TOKENS
    assert trajectory.segments[0].token_ids[-1] == kit.ids_of("x")[0]


def test_stop_ids_come_from_the_template_and_randomness_from_the_chain(kit: Any) -> None:
    backend = kit.scripted(lambda r: "bye" if kit.turn_number(r) else '!echo {"text": "a"}')
    with kit.engine(backend, tools=[echo], seed=5) as engine:
        list(engine.run([kit.task(0), kit.task(1)], chains=2, label="step3"))
        engine.submit(kit.task(0), 0, "g", sampling=SamplingParams(stop_token_ids=(0, 7), seed=9)).result(30)
    assert {r.sampling.stop_token_ids for r in backend.requests[:-2]} == {(kit.END,)}
    assert backend.requests[-1].sampling.stop_token_ids == (0, 7)
    seeds = {r.sampling.seed for r in backend.requests[:-2]}
    assert seeds == {
        derive_seed(5, f"step3/t{n}", f"t{n}", chain, turn) for n in (0, 1) for chain in (0, 1) for turn in (0, 1)
    }
    assert [r.sampling.seed for r in backend.requests[-2:]] == [derive_seed(9, "g", "t0", 0, turn) for turn in (0, 1)]


def test_the_work_of_a_turn_does_not_grow_with_the_number_of_turns(kit: Any) -> None:
    """Counted in characters handed to the template and turns parsed, not in time."""

    class Counting(kit.CharTemplate):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.decoded: list[int] = []

        def decode(self, ids: Any) -> str:
            self.decoded.append(len(ids))
            return super().decode(ids)  # type: ignore[no-any-return]

    def work(turns: int) -> tuple[int, int]:
        template = Counting()
        call = '!echo {"text": "abc"}'
        backend = kit.scripted(lambda r: call if kit.turn_number(r) < turns - 1 else "end")
        assert len(kit.play(backend, tools=[echo], template=template, max_turns=99).turns) == turns
        return template.encoded, sum(template.decoded)

    (encoded_10, decoded_10), (encoded_20, decoded_20), (encoded_30, decoded_30) = work(10), work(20), work(30)
    assert encoded_30 - encoded_20 == encoded_20 - encoded_10
    assert decoded_30 - decoded_20 == decoded_20 - decoded_10


def test_the_prompt_of_a_group_is_encoded_once_and_no_other_is_mistaken_for_it(kit: Any) -> None:
    class Counting(kit.CharTemplate):  # type: ignore[misc, name-defined]
        prompts = 0

        def encode_prompt(self, messages: Any, tools: Any = ()) -> list[int]:
            self.prompts += 1
            return super().encode_prompt(messages, tools)  # type: ignore[no-any-return]

    template = Counting()
    backend = kit.scripted("bye")
    tasks = [Task("a", kit.task(prompt="One.").messages), Task("b", kit.task(prompt="Two.").messages)]
    with kit.engine(backend, template=template, max_concurrency=1) as engine:
        found = list(engine.run([*tasks, tasks[0]], chains=5))
    assert template.prompts == 3
    texts = [template.decode(t.segments[0].token_ids) for t in found]
    assert texts == [f"<user>{word}.<end><assistant>bye<end>" for word in ["One"] * 5 + ["Two"] * 5 + ["One"] * 5]
