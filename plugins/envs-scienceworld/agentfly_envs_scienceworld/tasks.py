"""Lists of tasks, by the official splits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from agentfly_core.types import Split, Task, UnknownName, UsageError
from agentfly_envs_scienceworld.catalogue import SUBSETS, names, variations


def scienceworld_tasks(
    split: Split,
    *,
    subset: str | None = None,
    tasks: Sequence[str] = (),
    limit_per_task: int | None = None,
) -> list[Task]:
    """Tasks for a recipe's ``data.train`` or ``data.eval``, the kinds taking turns, so that the first rows are of all.

    Args:
        split: what they are for; it chooses the subset where none is named.
        subset: ``train``, ``dev`` or ``test``; by default ``train`` for training and ``dev`` for evaluation.
        tasks: only these, by name (``boil``) or number (``1-1``).
        limit_per_task: at most so many variations of each: the sizes of the tasks differ a hundredfold.

    Raises:
        UsageError: an option is wrong.
    """
    subset = subset or ("train" if split == "train" else "dev")
    if subset not in SUBSETS:
        raise UnknownName("subset of ScienceWorld", subset, SUBSETS)
    if limit_per_task is not None and limit_per_task < 1:
        raise UsageError(f"limit_per_task must be at least 1, got {limit_per_task}")
    columns = [[(name, v) for v in variations(name, subset)[:limit_per_task]] for name in names(tasks)]
    return [
        Task(f"{name}/{variation}", fields={"task": name, "variation": variation})
        for row in zip_longest(*columns)
        for name, variation in filter(None, row)
    ]
