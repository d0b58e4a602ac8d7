"""Lists of tasks: the official games by split, or generated ones without end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, get_args

from agentfly_core.types import Split, Task, UnknownName, UsageError, derive_seed
from agentfly_envs_alfworld.games import RELEASE, SPLITS, TASK_TYPES, data_folder, official_games, task_type

Kind: TypeAlias = Literal["auto", "official", "generated"]


def alfworld_tasks(
    split: Split,
    seed: int = 0,
    *,
    games: Kind = "auto",
    subset: str | None = None,
    task_types: Sequence[str] = (),
    data: str | None = None,
) -> Iterable[Task]:
    """Tasks for a recipe's ``data.train`` or ``data.eval``.

    Args:
        split: what they are for; it chooses the subset where none is named.
        seed: of generated training games. Those of evaluation are always the same.
        games: ``official`` ones, ``generated`` ones, or ``auto``: official where they are installed.
        subset: ``train``, ``valid_seen`` or ``valid_unseen``; by default ``train`` for training and ``valid_seen``
            for evaluation. Generated games of ``valid_unseen`` play in rooms that occur in no other subset.
        task_types: only these of the six types.
        data: folder of the official games, in place of ``ALFWORLD_DATA``.

    Raises:
        UsageError: an option is wrong, or the official games are asked for and are not there.
    """
    if games not in get_args(Kind):
        raise UnknownName("kind of ALFWorld games", str(games), get_args(Kind))
    subset = subset or ("train" if split == "train" else "valid_seen")
    if subset not in SPLITS:
        raise UnknownName("subset of ALFWorld", subset, SPLITS)
    for name in task_types:
        if name not in TASK_TYPES:
            raise UnknownName("task type of ALFWorld", name, TASK_TYPES)
    kinds = tuple(task_types) or TASK_TYPES
    folder = None if games == "generated" else data_folder(data)
    if folder is not None:
        return [
            Task(_name(path), fields={"game": str(path), "task_type": task_type(path)})
            for path in official_games(folder, subset)
            if task_type(path) in kinds
        ]
    if games == "official":
        raise UsageError(
            "the official games of ALFWorld are not installed: get them with `agentfly alfworld download`, "
            f"or set ALFWORLD_DATA to the folder that holds {RELEASE!r}"
        )
    return generated_tasks(subset, seed, kinds)


def generated_tasks(subset: str, seed: int, kinds: Sequence[str] = TASK_TYPES) -> Iterator[Task]:
    """Endless generated tasks, the types taking turns. No game of one subset occurs in another."""
    for number in itertools.count():
        kind = kinds[number % len(kinds)]
        world = derive_seed(seed if subset == "train" else 0, "alfworld", subset, number)
        fields = {"game": f"generated:{subset}:{world}:{kind}", "task_type": kind}
        yield Task(f"generated-{subset}-{number}", fields=fields)


def _name(path: object) -> str:
    """``valid_seen/TASK/TRIAL``."""
    return "/".join(str(path).split("/")[-4:-1])
