"""Chains of an agent that goes on within its turns: ids, masks and spans over random turns and the real tokenizers."""

from __future__ import annotations

import re

import pytest
from agentfly_templates_qwen.families import QWEN3, QWEN3_INSTRUCT_2507, QWEN25
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.rollout import Engine
from agentfly_core.testing import ScriptedBackend, ScriptedTurn
from agentfly_core.types import Continue, Generation, Task

FAMILIES = {family.name: family for family in (QWEN25, QWEN3, QWEN3_INSTRUCT_2507)}
CONTROL = re.compile(r"<\|[a-z_]+\|>|</?(?:tool_call|tool_response|think)>")
WORDS = (
    "a",
    " b",
    "\n",
    "\n\n",
    "Done.",
    "<",
    "</search>",
    "search>",
    "é",
    "e\u0301",
    "世界",
    "🙂",
    "👩\u200d🚀",
    "  ",
    "7",
)
CONTROLS = ("<|im_end|>", "<|im_start|>user\n", "<|endoftext|>", "<tool_call>", "</think>", "<|fim_pad|>")
TASK = Task("t", ({"role": "user", "content": "Go."},))

texts = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
hostile = st.lists(st.sampled_from((*WORDS, *CONTROLS)), max_size=8).map("".join)
turns = st.lists(st.tuples(texts, st.sampled_from(["text", "text", "token", "limit"]), hostile), min_size=1, max_size=5)


class Going(ToolCallingAgent):
    """Answers every turn with the next of some texts, within the turn."""

    name = "going"
    continues = True
    stop_texts = ("</search>",)

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def decide(self, turn, tools, context):
        return Continue(({"role": "user", "content": self.answers[context.turn]},))


@pytest.fixture(params=FAMILIES)
def bound(request, tokenizer_of):
    tokenizer = tokenizer_of(request.param)
    return FAMILIES[request.param].bind(tokenizer), tokenizer


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(turns=turns)
def test_ids_masks_and_spans(bound, turns):
    template, tokenizer = bound

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    script = [
        ScriptedTurn(text + ("</search> beyond" if end == "text" else ""), cut=end != "token") for text, end, _ in turns
    ]
    backend = ScriptedBackend(script, tokenizer)
    agent = Going([answer for _, _, answer in turns])
    with Engine(agent=agent, template=template, backend=backend, max_turns=len(turns)) as engine:
        trajectory = engine.submit(TASK, 0, "g").result(60)
    assert trajectory.error is None
    assert len(trajectory.turns) == len(turns)
    (segment,) = trajectory.segments

    ids, spans = template.encode_prompt(TASK.messages), []
    for number, ((text, end, answer), turn) in enumerate(zip(turns, trajectory.turns, strict=True)):
        written = encode(script[number].content) + (encode("<|im_end|>") if end == "token" else [])
        count = len(turn.token_ids)
        assert list(turn.token_ids) == written[:count]
        stopped = "</search>" in text or end == "text"
        sampled = tokenizer.decode(list(turn.token_ids), skip_special_tokens=False)
        assert ("</search>" in sampled) == stopped
        assert "</search>" not in tokenizer.decode(written[: count - 1], skip_special_tokens=False)
        assert stopped or count == len(written)
        assert turn.finish_reason == ("stop" if stopped or end == "token" else "length")
        spans.append((number, len(ids), len(ids) + count))
        ids += turn.token_ids
        if number == len(turns) - 1:
            break
        if end == "token" and not stopped:
            observed = template.encode_observation([{"role": "user", "content": answer}], after=_after(turn))
        else:
            observed = template.encode_continuation(answer)
            controls = set(tokenizer.get_added_tokens_decoder())
            assert not controls & set(observed)
            assert tokenizer.decode(observed, skip_special_tokens=False) == tokenizer.normalizer.normalize_str(answer)
            assert CONTROL.search(answer) or observed == encode(answer)
        ids += observed
    assert segment.token_ids == tuple(ids)
    assert [(s.turn, s.start, s.end) for s in segment.spans] == spans
    assert segment.action_mask == tuple(int(any(a <= i < b for _, a, b in spans)) for i in range(len(ids)))
    for request, (_, start, _) in zip(backend.requests, spans, strict=True):
        assert list(request.prompt_ids) == ids[:start]


def _after(turn):
    return Generation(turn.token_ids, (0.0,) * len(turn.token_ids), turn.finish_reason)
