"""Tasks of worlds that make an episode from a number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from agentfly_core.types import Split, Task, UsageError, derive_seed

_SEEDS = 2**31
"""Generators that take larger ones are rarer."""


def seeded_tasks(name: str, split: Split, seed: int) -> Iterator[Task]:
    """Tasks without end, each with the field ``seed``. Those of evaluation are the same whatever ``seed`` is."""
    for number in itertools.count():
        own = derive_seed(seed if split == "train" else 0, name, split, number) % _SEEDS
        yield Task(f"{split}-{number}", fields={"seed": own})


def episode_seed(task: Task, seed: int) -> int:
    """The task's own seed, or one made from ``seed``, from 0 to 2**31 - 1.

    Raises:
        UsageError: the field ``seed`` is no such number.
    """
    own = task.fields.get("seed", seed % _SEEDS)
    if type(own) is not int or not 0 <= own < _SEEDS:
        raise UsageError(
            f"task {task.id!r}: its field 'seed' must be a whole number from 0 to {_SEEDS - 1}, got {own!r:.40}"
        )
    return own
