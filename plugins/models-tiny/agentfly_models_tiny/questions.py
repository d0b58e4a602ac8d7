"""Arithmetic in words: the task of the quickstart."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentfly_core.tools.calculator import evaluate
from agentfly_core.types import Split, derive_seed

SMALLEST, LARGEST = 2, 99
"""Operands."""

WORDINGS: tuple[tuple[str, str], ...] = (
    ("What is {a} + {b}?", "{a}+{b}"),
    ("What is {a} - {b}?", "{a}-{b}"),
    ("What is {a} * {b}?", "{a}*{b}"),
    ("Compute {a} times {b}.", "{a}*{b}"),
    ("Add {a} and {b}.", "{a}+{b}"),
    ("Subtract {b} from {a}.", "{a}-{b}"),
    ("A box holds {a} pens. How many pens are in {b} boxes?", "{a}*{b}"),
    ("Ann has {a} coins and gets {b} more. How many coins now?", "{a}+{b}"),
    ("There were {a} birds and {b} flew away. How many are left?", "{a}-{b}"),
    ("What is {a} * {b} + {c}?", "{a}*{b}+{c}"),
    ("What is {a} * {b} - {c}?", "{a}*{b}-{c}"),
)
"""(question, expression that answers it)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the expression to give to a calculator, and the answer."""

    prompt: str
    expression: str
    answer: int


def held_out(a: int, b: int) -> bool:
    """Whether a pair of operands is kept for evaluation: a fifth of all pairs, chosen by their hash."""
    return hashlib.blake2b(f"{a},{b}".encode(), digest_size=8).digest()[0] % 5 == 0


def draw(rng: random.Random, split: Split) -> Question:
    """A question over a pair of operands of the split."""
    while True:
        a, b, c = (rng.randint(SMALLEST, LARGEST) for _ in range(3))
        if held_out(a, b) == (split == "eval"):
            break
    wording, form = rng.choice(WORDINGS)
    expression = form.format(a=a, b=b, c=c)
    return Question(wording.format(a=a, b=b, c=c), expression, int(evaluate(expression)))


def questions(split: Split, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Endless rows with ``id``, ``prompt`` and ``answer``.

    Args:
        split: pairs of operands of one split never occur in the other.
        seed: of the training questions; those of evaluation are always the same.
    """
    rng = random.Random(derive_seed(seed if split == "train" else 0, "questions", split))
    number = 0
    while True:
        question = draw(rng, split)
        yield {"id": f"{split}-{number}", "prompt": question.prompt, "answer": question.answer}
        number += 1
