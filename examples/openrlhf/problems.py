"""Word problems of several steps with numbers too large to do in one's head: a stand-in for your own data."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from agentfly_core.types import Split, derive_seed

PLACES = ("depot", "library", "orchard", "workshop", "museum", "bakery")
THINGS = ("crates", "books", "trees", "tools", "tickets", "loaves")


def problems(split: Split, seed: int = 0, steps: int = 5) -> Iterator[dict[str, Any]]:
    """Endless rows with ``id``, ``prompt`` and ``answer``; those of evaluation do not depend on the seed.

    Args:
        steps: operations from the first number to the answer.
    """
    rng = random.Random(derive_seed(seed if split == "train" else 0, "problems", split))
    number = 0
    while True:
        prompt, answer = _problem(rng, steps)
        yield {"id": f"{split}-{number}", "prompt": prompt, "answer": answer}
        number += 1


def _problem(rng: random.Random, steps: int) -> tuple[str, int]:
    place, thing = rng.choice(PLACES), rng.choice(THINGS)
    count = rng.randint(1_000, 9_999)
    lines = [f"On Monday morning a {place} has {count} {thing}."]
    for day in range(1, steps + 1):
        a, b = rng.randint(12, 98), rng.randint(12, 98)
        kind = rng.choice(("deliveries", "losses", "growth"))
        if kind == "losses" and count > a * b:
            count -= a * b
            lines.append(f"On day {day}, {a} visitors take {b} {thing} each.")
        elif kind == "growth":
            count += count // a
            lines.append(f"On day {day}, one more arrives for every {a} that are there, the remainder not counted.")
        else:
            count += a * b
            lines.append(f"On day {day}, {a} deliveries bring {b} {thing} each.")
    lines.append(f"How many {thing} are there in the end? Give the number last.")
    return " ".join(lines), count
