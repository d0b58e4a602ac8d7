"""How a world of ``rooms`` is laid out, and how it is won."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

DIRECTIONS: dict[str, tuple[int, int]] = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
ROOMS = ("kitchen", "hall", "cellar", "attic", "garden", "study", "bedroom", "tower")
COLORS = ("red", "blue", "green", "white", "black")
CONTAINERS = ("box", "chest", "drawer", "bag")
TREASURES = ("coin", "ring", "crown", "pearl")


@dataclass(frozen=True, slots=True)
class Layout:
    """A world at its beginning.

    Attributes:
        start: the first room.
        exits: room -> direction -> room; every way leads back as well.
        boxes: container -> room.
        items: item -> container.
        locks: locked container -> key.
        treasure: the item to take.
    """

    start: str
    exits: dict[str, dict[str, str]]
    boxes: dict[str, str]
    items: dict[str, str]
    locks: dict[str, str]
    treasure: str

    def plan(
        self,
        room: str,
        carried: Collection[str] = (),
        opened: Collection[str] = (),
        locked: Collection[str] | None = None,
    ) -> list[str]:
        """Actions that win from a state: fetch the treasure, each locked container's key before."""
        return self._fetch(self.treasure, room, carried, opened, self.locks if locked is None else locked)[0]

    def _fetch(
        self, item: str, room: str, carried: Collection[str], opened: Collection[str], locked: Collection[str]
    ) -> tuple[list[str], str]:
        """Actions from ``room`` until the item is carried, and the room they end in."""
        if item in carried:
            return [], room
        box = self.items[item]
        actions: list[str] = []
        if box in locked:
            actions, room = self._fetch(self.locks[box], room, carried, opened, locked)
        actions += [f"go {direction}" for direction in self.route(room, self.boxes[box])]
        if box in locked:
            actions.append(f"unlock {box} with {self.locks[box]}")
        if box not in opened:
            actions.append(f"open {box}")
        return [*actions, f"take {item}"], self.boxes[box]

    def route(self, start: str, goal: str) -> list[str]:
        """Directions of a shortest way."""
        ways: dict[str, list[str]] = {start: []}
        queue = deque([start])
        while goal not in ways:
            room = queue.popleft()
            for direction, neighbour in self.exits[room].items():
                if neighbour not in ways:
                    ways[neighbour] = [*ways[room], direction]
                    queue.append(neighbour)
        return ways[goal]


def make_layout(seed: int, rooms: int, locks: int) -> Layout:
    """A world that can be won.

    The containers on the way form a chain: the first is unlocked and holds a key, each further one is opened by the
    key of the one before and holds the next, the last holds the treasure. So ``locks`` locks take 3 * locks + 2
    actions, and walking between rooms besides.
    """
    rng = random.Random(seed)
    exits = _grow(rng, rng.sample(ROOMS, rooms))
    names = list(exits)
    colors = rng.sample(COLORS, locks + 1)
    kinds = [rng.choice(CONTAINERS) for _ in colors]
    chain = [f"{color} {kind}" for color, kind in zip(colors, kinds, strict=True)]
    keys = [f"{color} key" for color in colors[1:]]
    treasure = rng.choice(TREASURES)
    places = [rng.choice(names)]
    while len(places) < len(chain):  # never two in a row in one room: every lock needs a walk
        places.append(rng.choice([name for name in names if name != places[-1]]))
    boxes = dict(sorted(zip(chain, places, strict=True)))
    items = dict(zip([*keys, treasure], chain, strict=True))
    return Layout(rng.choice(names), exits, boxes, items, dict(zip(chain[1:], keys, strict=True)), treasure)


def _grow(rng: random.Random, names: list[str]) -> dict[str, dict[str, str]]:
    """Rooms on a grid, each joined to one that was there before."""
    cells = {(0, 0): names[0]}
    exits: dict[str, dict[str, str]] = {name: {} for name in names}
    steps = list(DIRECTIONS.items())
    opposite = {"north": "south", "south": "north", "east": "west", "west": "east"}
    for name in names[1:]:
        free = [
            (direction, room, (x + dx, y + dy))
            for (x, y), room in cells.items()
            for direction, (dx, dy) in steps
            if (x + dx, y + dy) not in cells
        ]
        direction, room, cell = rng.choice(free)
        cells[cell] = name
        exits[room][direction] = name
        exits[name][opposite[direction]] = room
    return {name: {d: ways[d] for d in DIRECTIONS if d in ways} for name, ways in exits.items()}
