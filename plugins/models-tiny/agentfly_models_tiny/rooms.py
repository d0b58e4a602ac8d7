"""A text world: rooms, containers, keys. Each task can be won, in five actions or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentfly_core.environments import ActionTool, TextEnvironment
from agentfly_core.types import Split, StepResult, Task, UsageError, derive_seed
from agentfly_models_tiny.layout import DIRECTIONS, Layout, make_layout

HELP = "You can: go DIRECTION, open CONTAINER, unlock CONTAINER with KEY, take ITEM, look."


class Rooms(TextEnvironment):
    """Find the treasure. It lies in a locked container, whose key lies in another one, which may be locked as well.

    Raw text actions (``go north``, ``unlock red box with red key``) and tools do the same. The reward is 1 when
    the treasure is taken, which ends the episode.

    Args:
        rooms: number of rooms, at least 2.
        locks: locked containers on the way to the treasure, at least 1.
        max_steps: actions until the episode is cut off.
    """

    def __init__(self, *, rooms: int = 3, locks: int = 1, max_steps: int = 20) -> None:
        if not 2 <= rooms <= 8 or not 1 <= locks <= 4:
            raise UsageError(f"environment 'rooms': 2 to 8 rooms and 1 to 4 locks, got {rooms} and {locks}")
        if max_steps < 1:
            raise UsageError(f"environment 'rooms': max_steps must be at least 1, got {max_steps}")
        self._rooms, self._locks, self._max_steps = rooms, locks, max_steps
        self._start(make_layout(0, rooms, locks))

    @staticmethod
    def tasks(split: Split, seed: int = 0) -> Iterator[Task]:
        """Endless tasks; no world of one split occurs in the other, and those of evaluation are always the same."""
        number = 0
        while True:
            world = derive_seed(seed if split == "train" else 0, "rooms", split, number) // 2 * 2 + (split == "eval")
            yield Task(f"{split}-{number}", fields={"world": world})
            number += 1

    @staticmethod
    def tools() -> Sequence[ActionTool]:
        """The actions as tools."""
        thing = {"type": "string"}
        directions = {"type": "string", "enum": list(DIRECTIONS)}
        return (
            ActionTool("go", "Walk to the next room.", {"direction": directions}, "go {direction}"),
            ActionTool("open", "Open a container.", {"container": thing}, "open {container}"),
            ActionTool(
                "unlock",
                "Unlock a container with a key.",
                {"container": thing, "key": thing},
                "unlock {container} with {key}",
            ),
            ActionTool("take", "Take an item.", {"item": thing}, "take {item}"),
            ActionTool("look", "Look around."),
        )

    def begin(self, task: Task, seed: int) -> str:
        """The world depends on the task alone, so that all chains of a group play the same one."""
        world = task.fields.get("world", task.id)
        self._start(make_layout(derive_seed(0, "world", str(world)), self._rooms, self._locks))
        return f"Find the {self.layout.treasure}. {HELP}\n{self._look()}"

    def act(self, action: str) -> StepResult:
        """One action; what makes no sense changes nothing but the count of steps."""
        words = " ".join(action.lower().split())
        self.steps += 1
        text = self._do(words) if len(words) < 200 else "Nothing happens."
        won = self.layout.treasure in self.carried
        return StepResult(text, reward=float(won), terminated=won, truncated=not won and self.steps >= self._max_steps)

    def admissible_actions(self) -> list[str]:
        """Every action that would change something now, and ``look``."""
        here = self._here()
        actions = [f"go {d}" for d in self.layout.exits[self.room]]
        for box in here:
            if box in self.locked:
                actions += [f"unlock {box} with {k}" for k in self.carried if k == self.layout.locks[box]]
            elif box not in self.opened:
                actions.append(f"open {box}")
        return [*actions, *(f"take {item}" for item in self._visible()), "look"]

    def anchor(self) -> str:
        """The state's key: equal for two chains of a task that stand in the same state."""
        parts: list[Any] = [self.room, sorted(self.opened), sorted(self.locked), sorted(self.carried)]
        return repr(parts)

    def plan(self) -> list[str]:
        """Actions that win from here."""
        return self.layout.plan(self.room, self.carried, self.opened, self.locked)

    def _start(self, layout: Layout) -> None:
        self.layout = layout
        self.room = layout.start
        self.opened: set[str] = set()
        self.locked: set[str] = set(layout.locks)
        self.carried: list[str] = []
        self.steps = 0

    def _here(self) -> list[str]:
        return [box for box, room in self.layout.boxes.items() if room == self.room]

    def _visible(self) -> list[str]:
        return [
            item
            for item, box in self.layout.items.items()
            if box in self.opened and self.layout.boxes[box] == self.room and item not in self.carried
        ]

    def _do(self, action: str) -> str:
        verb, _, rest = action.partition(" ")
        handlers = {"go": self._go, "open": self._open, "unlock": self._unlock, "take": self._take}
        if verb == "look" and not rest:
            return self._look()
        return handlers[verb](rest) if verb in handlers else "Nothing happens."

    def _look(self) -> str:
        boxes = " and ".join(f"a {self._state(box)} {box}" for box in self._here())
        exits = " and ".join(self.layout.exits[self.room])
        return f"{self.room.capitalize()}: {boxes or 'nothing'}. Exits: {exits}."

    def _state(self, box: str) -> str:
        return "locked" if box in self.locked else "open" if box in self.opened else "closed"

    def _go(self, direction: str) -> str:
        if direction not in self.layout.exits[self.room]:
            return "There is no way."
        self.room = self.layout.exits[self.room][direction]
        return self._look()

    def _open(self, box: str) -> str:
        if box not in self._here():
            return "There is no such thing."
        if box in self.locked:
            return "It is locked."
        if box in self.opened:
            return "It is open."
        self.opened.add(box)
        inside = self._inside(box)
        return f"Inside: {' and '.join(inside) if inside else 'nothing'}."

    def _inside(self, box: str) -> list[str]:
        return [i for i, where in self.layout.items.items() if where == box and i not in self.carried]

    def _unlock(self, rest: str) -> str:
        box, _, key = rest.partition(" with ")
        if box not in self._here():
            return "There is no such thing."
        if box not in self.locked:
            return "It is not locked."
        if key not in self.carried:
            return "You do not have that."
        if key != self.layout.locks[box]:
            return "It does not fit."
        self.locked.remove(box)
        return "Unlocked."

    def _take(self, item: str) -> str:
        if item not in self._visible():
            return "There is no such thing."
        self.carried.append(item)
        return "Taken."
