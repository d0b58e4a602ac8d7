"""Games of our own: the package's floor plans and goals, objects placed by a seed, solvable by construction.

A game is made together with the plan that wins it: the object wanted lies somewhere else than it belongs, where it
belongs can hold it, and what the task needs (a sink, a microwave, a fridge, a lamp) is in the room.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from agentfly_core.types import UnknownName, UsageError, derive_seed
from agentfly_envs_alfworld.floorplans import Room, read_room, room_numbers
from agentfly_envs_alfworld.games import SPLITS, TASK_TYPES, Game
from agentfly_envs_alfworld.problem import World, describe, plan
from agentfly_envs_alfworld.wheel import constants, goals, package_text

_APPLIANCE = {
    "pick_clean_then_place_in_recep": ("SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("Fridge", "Coolable"),
}
"""By task type: where the object is treated, and the table of objects that can be."""
_MOST = 3
"""Objects of the wanted type at most."""
_OTHERS = 12
"""Types of other objects at most: about as many as the official games hold, and the planner's work grows with them."""


@functools.lru_cache(maxsize=16)
def generated_game(name: str) -> Game:
    """The game that ``generated:SUBSET:NUMBER:TYPE`` names: always the same one, on every machine.

    Raises:
        UsageError: the name has another form, or an unknown subset or type.
        MissingDependency: the package ``alfworld`` is not installed.
    """
    parts = name.split(":")
    if len(parts) != 4 or parts[0] != "generated" or not parts[2].isdecimal():
        raise UsageError(f"a generated game is named generated:SUBSET:NUMBER:TYPE, got {name!r:.100}")
    _, subset, number, kind = parts
    if subset not in SPLITS:
        raise UnknownName("subset of ALFWorld", subset, SPLITS)
    if kind not in TASK_TYPES:
        raise UnknownName("task type of ALFWorld", kind, TASK_TYPES)
    rng = random.Random(derive_seed(int(number), "alfworld game", subset, kind))
    world = make_world(rng, kind, unseen=subset == "valid_unseen")
    grammar = package_text("data", "alfred.twl2").replace("UNKNOWN GOAL", world.sentence)
    return Game(name, package_text("data", "alfred.pddl"), describe(world), grammar, tuple(plan(world)))


@dataclass(frozen=True)
class _Choice:
    """A thing, where it belongs, and the room."""

    room: Room
    thing: str
    goal_kind: str


def make_world(rng: random.Random, kind: str, *, unseen: bool = False) -> World:
    """A world with a task of this type."""
    choice = _choose(rng, kind, unseen)
    room, thing = choice.room, choice.thing
    wanted = 2 if kind == "pick_two_obj_and_place" else 1
    placed: list[tuple[str, str]] = []
    elsewhere = [p for p in room.places_for(thing) if room.receptacles[p] != choice.goal_kind]
    for _ in range(rng.randint(wanted, _MOST)):
        placed.append((thing, rng.choice(elsewhere)))
    others = [other for other in room.things if other != thing]
    for other in sorted(rng.sample(others, min(_OTHERS, len(others)))):
        places = room.places_for(other)
        placed += [(other, rng.choice(places)) for _ in range(rng.randint(1, 2))]
    lamp = rng.choice(room.lamps) if room.lamps else ""
    if lamp:
        placed.append((lamp, rng.choice(_surfaces(room))))
    sentence = _sentence(rng, kind, choice, lamp)
    return World(
        kind=kind,
        room=room,
        placed=tuple(placed),
        wanted=wanted,
        goal_kind=choice.goal_kind,
        treated_in=_APPLIANCE[kind][0] if kind in _APPLIANCE else "",
        lamp=lamp,
        sentence=sentence,
    )


def _choose(rng: random.Random, kind: str, unseen: bool) -> _Choice:
    """A room, a thing in it and a place where it belongs, each equally likely among those with a choice below them."""
    numbers = [n for k in sorted(constants().GOALS_VALID[kind]) for n in room_numbers(k, unseen)]
    rng.shuffle(numbers)
    for number in numbers:
        room = read_room(number)
        choices = {thing: found for thing in room.things if (found := _goal_kinds(room, thing, kind))}
        if choices:
            thing = rng.choice(sorted(choices))
            return _Choice(room, thing, rng.choice(choices[thing]))
    raise UsageError(f"no floor plan of the installed package 'alfworld' has what the task {kind!r} needs")


def _goal_kinds(room: Room, thing: str, kind: str) -> list[str]:
    """Types of receptacles in which the thing may be wanted, so that it also has a place elsewhere to begin in.

    For a look under a lamp there is no such place; the empty text stands for it.
    """
    kinds = {room.receptacles[place] for place in room.places_for(thing)}
    if kind == "look_at_obj_in_light":
        return [""] if room.lamps and kinds and _surfaces(room) else []
    treated_in, table = _APPLIANCE.get(kind, ("", ""))
    if table and thing not in constants().VAL_ACTION_OBJECTS[table]:
        return []
    if treated_in and treated_in not in room.receptacles.values():
        return []
    return sorted(k for k in kinds if k != treated_in and len(kinds) > 1)


def _surfaces(room: Room) -> list[str]:
    """Where a lamp may stand."""
    tables = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "CounterTop", "TVStand", "Shelf")
    return [place for place, kind in room.receptacles.items() if kind in tables]


def _sentence(rng: random.Random, kind: str, choice: _Choice, lamp: str) -> str:
    templates = goals()[kind]["templates"]
    gaps = {"obj": choice.thing.lower(), "recep": choice.goal_kind.lower(), "toggle": lamp.lower()}
    return rng.choice(list(templates)).format(**gaps)
