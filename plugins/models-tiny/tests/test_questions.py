from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice

from agentfly_models_tiny.demonstrations import corrupt, demonstrations, guess, with_call
from agentfly_models_tiny.questions import LARGEST, SMALLEST, WORDINGS, Question, draw, held_out, questions


def recompute(prompt: str) -> int:
    """The answer by reading the question, written without the plugin's tables."""
    a, b, *rest = map(int, re.findall(r"\d+", prompt))
    if rest:
        return a * b + rest[0] if "+" in prompt else a * b - rest[0]
    if prompt.startswith("Subtract"):
        return b - a
    if any(word in prompt for word in ("+", "Add", "gets")):
        return a + b
    return a - b if " - " in prompt or "flew" in prompt else a * b


def test_answers_are_right():
    for row in [*islice(questions("train", 3), 2000), *islice(questions("eval"), 2000)]:
        assert set(row) == {"id", "prompt", "answer"}
        assert row["answer"] == recompute(row["prompt"]), row


def test_every_wording_occurs_about_equally_often():
    counts = Counter(re.sub(r"\d+", "N", row["prompt"]) for row in islice(questions("train"), 5500))
    assert len(counts) == len(WORDINGS) == 11
    assert all(400 < count < 600 for count in counts.values())


def pairs(split: str, seed: int) -> set[tuple[int, int]]:
    found = set()
    for row in islice(questions(split, seed), 5000):
        a, b, *_ = map(int, re.findall(r"\d+", row["prompt"]))
        found.add((b, a) if row["prompt"].startswith("Subtract") else (a, b))
    return found


def test_held_out_pairs_never_occur_in_training():
    train, held = pairs("train", 1) | pairs("train", 2), pairs("eval", 0)
    assert not train & held
    assert all(held_out(*pair) for pair in held)
    span = range(SMALLEST, LARGEST + 1)
    share = sum(held_out(a, b) for a in span for b in span) / len(span) ** 2
    assert 0.18 < share < 0.22


def test_streams_are_seeded_endless_and_identified():
    first = list(islice(questions("train", 1), 300))
    assert first == list(islice(questions("train", 1), 300))
    assert first != list(islice(questions("train", 2), 300))
    assert list(islice(questions("eval", 1), 300)) == list(islice(questions("eval", 2), 300))
    assert len({row["id"] for row in first}) == 300


def test_demonstrations_come_in_two_stages():
    rows = list(demonstrations(5, correct=400, mixed=2000))
    assert rows == list(demonstrations(5, correct=400, mixed=2000))
    kinds = Counter()
    for number, row in enumerate(rows):
        question, *rest = row["messages"]
        said = int(re.search(r"The answer is (-?\d+)\.", rest[-1]["content"])[1])
        right = said == recompute(question["content"])
        kind = "guess" if len(rest) == 1 else "call"
        if number < 400:
            assert (kind, right) == ("call", True)
        else:
            kinds[kind, right] += 1
        if kind == "call":
            assert rest[1]["content"] == str(said)
            assert list(rest[0]["tool_calls"][0]["function"]["arguments"]) == ["expression"]
    shares = {kind: count / 2000 for kind, count in kinds.items()}
    assert abs(shares["call", True] - 0.12) < 0.04  # a corrupted call may be right by luck
    assert abs(shares["call", False] - 0.1) < 0.03
    assert abs(shares["guess", True] - 0.039) < 0.02


def test_no_demonstration_uses_a_held_out_pair():
    for row in demonstrations(1, correct=500, mixed=500):
        prompt = row["messages"][0]["content"]
        a, b, *_ = map(int, re.findall(r"\d+", prompt))
        assert not held_out(*((b, a) if prompt.startswith("Subtract") else (a, b)))


def test_a_corrupted_expression_differs_in_one_place_and_still_has_a_value():
    rng = random.Random(0)
    for _ in range(300):
        expression = draw(rng, "train").expression
        other = corrupt(expression, rng)
        assert len(other) == len(expression)
        assert sum(a != b for a, b in zip(expression, other, strict=True)) <= 1
        with_call(other)


def test_guesses_are_near():
    rng = random.Random(0)
    question = Question("?", "8*50", 400)
    guesses = [guess(question, rng) for _ in range(2000)]
    assert all(abs(g - 400) <= 100 for g in guesses)
    assert 50 < guesses.count(400) < 160
