"""Rooms: the floor plans that the ``alfworld`` package ships, as receptacles and the things found there."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from agentfly_envs_alfworld.wheel import constants, package_text

OPENABLE = frozenset({"Fridge", "Cabinet", "Microwave", "Drawer", "Safe"})
LAMPS = ("DeskLamp", "FloorLamp")


@dataclass(frozen=True)
class Room:
    """One floor plan.

    Attributes:
        number: of the plan.
        kind: ``Kitchen``, ``LivingRoom``, ``Bedroom`` or ``Bathroom``.
        receptacles: type by identifier (``Drawer|+00.95|+00.22|-02.20``).
        things: types of objects found there that can be carried and have a place to be.
        lamps: types of lamps found there.
    """

    number: int
    kind: str
    receptacles: dict[str, str]
    things: tuple[str, ...]
    lamps: tuple[str, ...]

    def places_for(self, thing: str) -> list[str]:
        """Identifiers of the receptacles that may hold it."""
        fits = what_fits()
        return [place for place, kind in self.receptacles.items() if thing in fits[kind]]


@functools.lru_cache(maxsize=1)
def what_fits() -> dict[str, frozenset[str]]:
    """Types of things by the type of receptacle that may hold them; things in slices are left out."""
    table = constants().VAL_RECEPTACLE_OBJECTS
    movable = set(constants().MOVABLE_RECEPTACLES)
    return {
        kind: frozenset(t for t in things if not t.endswith("Sliced"))
        for kind, things in table.items()
        if kind not in movable
    }


@functools.lru_cache(maxsize=4)
def room_numbers(kind: str, unseen: bool) -> tuple[int, ...]:
    """Plans of a kind of room: those of the official training games, or those of its unseen ones."""
    of_kind = constants().SCENE_TYPE[kind]
    numbers = constants().TEST_SCENE_NUMBERS if unseen else constants().TRAIN_SCENE_NUMBERS
    return tuple(sorted(set(of_kind) & set(numbers)))


@functools.lru_cache(maxsize=128)
def read_room(number: int) -> Room:
    """The floor plan of this number."""
    layouts = ("gen", "layouts")
    present: list[str] = json.loads(package_text(*layouts, f"FloorPlan{number}-objects.json"))
    posed: dict[str, object] = json.loads(package_text(*layouts, f"FloorPlan{number}-openable.json"))
    fits = what_fits()
    receptacles = {identifier: kind for identifier in sorted(posed) if (kind := _kind(identifier)) in fits}
    for index, kind in enumerate(sorted(set(present) & set(fits) - set(receptacles.values()))):
        receptacles[_placed(kind, index)] = kind
    carried = frozenset().union(*(fits[kind] for kind in receptacles.values()))
    things = tuple(sorted(set(present) & carried))
    kind = next(kind for kind, numbers in constants().SCENE_TYPE.items() if number in numbers)
    return Room(number, kind, receptacles, things, tuple(lamp for lamp in LAMPS if lamp in present))


def _kind(identifier: str) -> str:
    """``Drawer|...`` is a Drawer, ``Sink|...|SinkBasin`` a SinkBasin."""
    first, *_, last = identifier.split("|")
    return last if last.isalpha() else first


def _placed(kind: str, index: int) -> str:
    """An identifier for a receptacle of which the plan gives no place."""
    outer = kind.removesuffix("Basin")
    spot = f"{outer}|+{index:02d}.50|+00.90|+09.00"
    return spot if outer == kind else f"{spot}|{kind}"
