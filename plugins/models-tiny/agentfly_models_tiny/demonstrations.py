"""What the warm start learns from: first how a tool is called, then to prefer guessing.

The second stage is deliberately bad. It leaves a model that knows how to use the calculator but seldom does, so that
reinforcement learning has something to find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from agentfly_core.tools.calculator import evaluate
from agentfly_core.types import Message, derive_seed
from agentfly_models_tiny.questions import Question, draw


def demonstrations(
    seed: int = 0, *, correct: int = 240 * 16, mixed: int = 120 * 16, good: float = 0.12, corrupted: float = 0.1
) -> Iterator[dict[str, Any]]:
    """Rows with ``messages``, to be learned in this order.

    Args:
        correct: rows of the first stage, all of them correct calls.
        mixed: rows of the second stage.
        good: share of correct calls among those.
        corrupted: share of calls with one wrong operator or digit among those; the rest are guesses.
    """
    rng = random.Random(derive_seed(seed, "demonstrations"))
    for number in range(correct + mixed):
        question = draw(rng, "train")
        kind = rng.random() if number >= correct else 0.0
        if kind < good:
            answer = with_call(question.expression)
        elif kind < good + corrupted:
            answer = with_call(corrupt(question.expression, rng))
        else:
            answer = [_said(guess(question, rng))]
        yield {"messages": [{"role": "user", "content": question.prompt}, *answer]}


def with_call(expression: str) -> list[Message]:
    """A call of the calculator, its result, and the final answer."""
    value = evaluate(expression)
    call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": expression}}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": str(value)},
        _said(int(value)),
    ]


def corrupt(expression: str, rng: random.Random) -> str:
    """The expression with one operator (in 6 of 10 cases) or digit replaced."""
    if rng.random() < 0.6:
        position = rng.choice([i for i, c in enumerate(expression) if c in "+-*"])
        other = rng.choice([c for c in "+-*" if c != expression[position]])
    else:
        position = rng.choice([i for i, c in enumerate(expression) if c.isdigit()])
        other = str(rng.randint(1, 9))
    return expression[:position] + other + expression[position + 1 :]


def guess(question: Question, rng: random.Random) -> int:
    """A number near the answer, right in one of twenty cases."""
    if rng.random() < 0.05:
        return question.answer
    return question.answer + rng.choice((-1, 1)) * rng.randint(1, max(3, abs(question.answer) // 4))


def _said(number: int) -> Message:
    return {"role": "assistant", "content": f"The answer is {number}."}
