"""The golden cases: prompts, masks, observations, new segments and parses, to the id."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from agentfly_templates_qwen.families import QWEN3, QWEN3_INSTRUCT_2507, QWEN25

from agentfly_core.types import Appended, CallError, Generation, History, NewSegment

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "templates" / "cases.jsonl"
FAMILIES = {f.name: f for f in (QWEN25, QWEN3, QWEN3_INSTRUCT_2507)}
# Not splitlines: the cases hold line separators of Unicode.
CASES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").split("\n") if line]


def generation(turn) -> Generation:
    ids = tuple(turn["sampled_ids"])
    return Generation(ids, (0.0,) * len(ids), turn["finish"])


def bind(case, tokenizer_of, history):
    options = {"thinking": case["kwargs"]["enable_thinking"]} if case["kwargs"] else {}
    return FAMILIES[case["template"]].bind(tokenizer_of(case["template"]), history=history, **options)


def expected_segments(case) -> list[tuple[list[int], list[list[int]]]]:
    """Segments from the parts of the case, the safe ids where there are any."""
    ids = list(case.get("safe_prompt_ids", case["prompt_ids"]))
    spans: list[list[int]] = []
    segments = []
    for turn in case["turns"]:
        spans.append([len(ids), len(ids) + len(turn["sampled_ids"])])
        ids = ids + turn["sampled_ids"]
        if turn["observation"] is None:
            break
        if turn["extends_prefix"]:
            ids = ids + turn.get("safe_observation_ids", turn["observation_ids"])
        else:
            segments.append((ids, spans))
            ids, spans = list(turn.get("safe_next_prompt_ids", turn["next_prompt_ids"])), []
    return [*segments, (ids, spans)]


def roll(template, case) -> list[tuple[list[int], list[list[int]]]]:
    """Segments as a rollout builds them."""
    tools = case["tools"] or ()
    ids, spans, segments = list(template.encode_prompt(case["messages"], tools)), [], []
    history = History(list(case["messages"]))
    for turn in case["turns"]:
        sampled = generation(turn)
        spans.append([len(ids), len(ids) + len(sampled.token_ids)])
        ids += sampled.token_ids
        raw = template.decode(sampled.token_ids[: -1 if turn["finish"] == "stop" else None])
        history.messages.append({"role": "assistant", "content": raw})
        history.segment_ids, history.last, history.last_raw = ids, sampled, raw
        if turn["observation"] is None:
            break
        step = template.extend(history, turn["observation"], tools)
        history.messages += turn["observation"]
        if isinstance(step, Appended):
            ids += step.ids
        else:
            segments.append((ids, spans))
            ids, spans = list(step.prompt_ids), []
    return [*segments, (ids, spans)]


def test_all_cases_are_there():
    assert len(CASES) == 88


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_template_history(case, tokenizer_of):
    expected = expected_segments(case)
    assert roll(bind(case, tokenizer_of, "template"), case) == expected
    if not any(key.startswith("safe") for part in (case, *case["turns"]) for key in part):
        # The case states its segments a second time.
        assert expected == [(s["full_ids"], s["trained_spans"]) for s in case["segments"]]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_append_history(case, tokenizer_of):
    segments = roll(bind(case, tokenizer_of, "append"), case)
    assert len(segments) == 1
    if case["extends_prefix"]:
        assert segments == expected_segments(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_extension_decisions(case, tokenizer_of):
    template = bind(case, tokenizer_of, "template")
    messages = list(case["messages"])
    for turn in case["turns"]:
        if turn["observation"] is None:
            break
        messages.append(turn["reference_message"])
        history = History(messages, [], generation(turn), turn["raw"])
        step = template.extend(history, turn["observation"], case["tools"] or ())
        assert isinstance(step, Appended if turn["extends_prefix"] else NewSegment)
        messages += turn["observation"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_parse(case, tokenizer_of):
    template = bind(case, tokenizer_of, "append")
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in case["tools"] or ()}
    for turn in case["turns"]:
        parsed, expected = template.parse(generation(turn)), turn["parse"]
        if not expected["binding"]:
            continue
        assert (parsed.reasoning or "").strip() == (expected["reasoning"] or "").strip()
        assert (parsed.reasoning is None) == (expected["reasoning"] is None)
        assert parsed.content.strip() == expected["content"].strip()
        assert [outcome(call, schemas) for call in parsed.calls] == [
            {"error": c["error"]} if "error" in c else c for c in expected["calls"]
        ]


def outcome(call, schemas):
    if isinstance(call, CallError):
        return {"error": call.kind.value}
    if call.name not in schemas:
        return {"error": "unknown_tool"}
    if not jsonschema.Draft202012Validator(schemas[call.name]).is_valid(call.arguments):
        return {"error": "invalid_arguments"}
    return {"name": call.name, "arguments": call.arguments}
