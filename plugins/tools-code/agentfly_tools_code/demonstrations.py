"""Arithmetic answered with Python: what the smallest model learns the code agent's notation from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from agentfly_core.types import Message, Split, derive_seed


def demonstrations(split: Split = "train", seed: int = 0, right: float = 0.5) -> Iterator[dict[str, Any]]:
    """Endless rows with ``messages``. Needs the package of the model ``tiny``, whose questions they answer.

    Args:
        right: share of the rows that use Python; the others guess, so that reinforcement has something to find.
    """
    from agentfly_models_tiny.questions import draw

    rng = random.Random(derive_seed(seed, "code-demonstrations", split))
    while True:
        question = draw(rng, split)
        messages: list[Message] = [{"role": "user", "content": question.prompt}]
        if rng.random() < right:
            messages += [
                {"role": "assistant", "content": f"```python\n{question.expression}\n```"},
                {"role": "user", "content": f"```output\n{question.answer}\n```\n"},
                {"role": "assistant", "content": str(question.answer)},
            ]
        else:
            messages.append({"role": "assistant", "content": str(question.answer + rng.randint(-99, 99))})
        yield {"messages": messages}
