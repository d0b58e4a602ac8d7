"""The tasks of ScienceWorld 1.2 and their variations, so that listing them starts no simulator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from agentfly_core.types import UnknownName

Subset: TypeAlias = Literal["train", "dev", "test"]
SUBSETS: tuple[str, ...] = get_args(Subset)

TASKS: dict[str, tuple[str, int]] = {
    "boil": ("1-1", 30),
    "melt": ("1-2", 30),
    "freeze": ("1-3", 30),
    "change-the-state-of-matter-of": ("1-4", 30),
    "use-thermometer": ("2-1", 540),
    "measure-melting-point-known-substance": ("2-2", 436),
    "measure-melting-point-unknown-substance": ("2-3", 300),
    "power-component": ("3-1", 20),
    "power-component-renewable-vs-nonrenewable-energy": ("3-2", 20),
    "test-conductivity": ("3-3", 900),
    "test-conductivity-of-unknown-substances": ("3-4", 600),
    "find-living-thing": ("4-1", 300),
    "find-non-living-thing": ("4-2", 300),
    "find-plant": ("4-3", 300),
    "find-animal": ("4-4", 300),
    "grow-plant": ("5-1", 126),
    "grow-fruit": ("5-2", 126),
    "chemistry-mix": ("6-1", 32),
    "chemistry-mix-paint-secondary-color": ("6-2", 36),
    "chemistry-mix-paint-tertiary-color": ("6-3", 36),
    "lifespan-longest-lived": ("7-1", 125),
    "lifespan-shortest-lived": ("7-2", 125),
    "lifespan-longest-lived-then-shortest-lived": ("7-3", 125),
    "identify-life-stages-1": ("8-1", 14),
    "identify-life-stages-2": ("8-2", 10),
    "inclined-plane-determine-angle": ("9-1", 168),
    "inclined-plane-friction-named-surfaces": ("9-2", 1386),
    "inclined-plane-friction-unnamed-surfaces": ("9-3", 162),
    "mendelian-genetics-known-plant": ("10-1", 120),
    "mendelian-genetics-unknown-plant": ("10-2", 480),
}
"""Name -> number in the paper (arXiv 2203.07540), variations."""

SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
)
"""``easy`` is all of the others but ``openContainers``; tasks on electricity keep their electrical actions."""


def variations(task: str, subset: str) -> range:
    """The official split of a task's variations: the first two quarters train, the third dev, the rest test."""
    count = TASKS[task][1]
    quarter = count // 4
    bounds = (0, 2 * quarter, 3 * quarter, count)
    part = SUBSETS.index(subset)
    return range(bounds[part], bounds[part + 1])


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Names of tasks given by name or number; all of them where none is given.

    Raises:
        UnknownName: one is no task.
    """
    by_number = {number: name for name, (number, _) in TASKS.items()}
    found = tuple(by_number.get(name, name) for name in given)
    for name in found:
        if name not in TASKS:
            raise UnknownName("task of ScienceWorld", name, TASKS)
    return found or tuple(TASKS)
