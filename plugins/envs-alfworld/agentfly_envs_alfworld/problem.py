"""A generated world as PDDL, and the plan that wins it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from agentfly_envs_alfworld.floorplans import OPENABLE, Room, what_fits
from agentfly_envs_alfworld.names import mangle, player_names
from agentfly_envs_alfworld.wheel import constants, goals

_START = "loc_bar_0_bar_0_bar_0_bar_30"
_RULED = ("SinkType", "SinkBasinType", "MicrowaveType", "FridgeType")
"""Types of receptacles that the rules themselves speak of."""
_KNIVES = ("KnifeType", "ButterKnifeType")


@dataclass(frozen=True)
class World:
    """A room with everything in its place, and a task.

    Attributes:
        kind: of the task.
        placed: (type of thing, receptacle) of every object; the wanted ones come first.
        wanted: how many of the first are needed.
        goal_kind: type of receptacle in which they are wanted; empty for a look under a lamp.
        treated_in: type of receptacle in which they are cleaned, heated or cooled first; or empty.
        lamp: type of the room's lamp, or empty.
        sentence: the task in words.
    """

    kind: str
    room: Room
    placed: tuple[tuple[str, str], ...]
    wanted: int
    goal_kind: str
    treated_in: str
    lamp: str
    sentence: str

    @functools.cached_property
    def objects(self) -> list[tuple[str, str, str]]:
        """(identifier, type, receptacle) of every object."""
        return [
            (mangle(f"{thing}|+{number:02d}.10|+00.80|-{number:02d}.25"), thing, mangle(place))
            for number, (thing, place) in enumerate(self.placed)
        ]

    @functools.cached_property
    def receptacles(self) -> list[tuple[str, str, str]]:
        """(identifier, type, location) of every receptacle; each stands at a location of its own."""
        return [
            (mangle(identifier), kind, f"loc_bar_{number}_bar_{number}_bar_0_bar_30")
            for number, (identifier, kind) in enumerate(self.room.receptacles.items(), start=1)
        ]


def describe(world: World) -> str:
    """The PDDL problem."""
    locations = {name: where for name, _, where in world.receptacles}
    held = sorted({thing for _, thing, _ in world.objects})
    holding = sorted({kind for _, kind, _ in world.receptacles})
    declared = [("agent1", "agent"), (_START, "location"), *((where, "location") for where in locations.values())]
    declared += [(f"{thing}Type", "otype") for thing in held]
    declared += [(name, "otype") for name in _KNIVES if name[:-4] not in held]
    declared += [(f"{kind}Type", "rtype") for kind in holding]
    declared += [(name, "rtype") for name in _RULED if name[:-4] not in holding]
    declared += [(name, "receptacle") for name, _, _ in world.receptacles]
    declared += [(name, "object") for name, _, _ in world.objects]
    facts = [("atLocation", "agent1", _START), *_receptacle_facts(world), *_object_facts(world, locations)]
    fits = what_fits()
    facts += [("canContain", f"{k}Type", f"{t}Type") for k in holding for t in held if t in fits[k]]
    return "\n".join(
        [
            "(define (problem generated)",
            "(:domain alfred)",
            "(:objects",
            *(f"  {name} - {kind}" for name, kind in declared),
            ")",
            "(:init",
            *(f"  ({' '.join(fact)})" for fact in facts),
            ")",
            _goal(world),
        ]
    )


def plan(world: World) -> list[str]:
    """Commands that win, in the players' words."""
    names = player_names(name.lower() for name, _, _ in [*world.objects, *world.receptacles])
    kinds = {name: kind for name, kind, _ in world.receptacles}
    first = {kind: name for name, kind, _ in reversed(world.receptacles)}
    called = {name: names[name.lower()] for name in [*kinds, *(name for name, _, _ in world.objects)]}
    opened: set[str] = set()
    at = ""

    def reach(place: str, *, inside: bool = True) -> Iterator[str]:
        nonlocal at
        if place != at:
            at = place
            yield f"go to {called[place]}"
        if inside and kinds[place] in OPENABLE and place not in opened:
            opened.add(place)
            yield f"open {called[place]}"

    commands: list[str] = []
    for thing, _, place in world.objects[: world.wanted]:
        commands += [*reach(place), f"take {called[thing]} from {called[place]}"]
        if world.treated_in:
            where = first[world.treated_in]
            commands += [*reach(where, inside=False), f"{_verb(world.kind)} {called[thing]} with {called[where]}"]
        if world.goal_kind:
            target = first[world.goal_kind]
            commands += [*reach(target), f"move {called[thing]} to {called[target]}"]
        else:
            lamp, _, stand = next(row for row in world.objects if row[1] == world.lamp)
            commands += [*reach(stand, inside=False), f"use {called[lamp]}"]
    return commands


def _receptacle_facts(world: World) -> Iterator[tuple[str, ...]]:
    for name, kind, location in world.receptacles:
        yield "receptacleType", name, f"{kind}Type"
        yield "receptacleAtLocation", name, location
        if kind in OPENABLE:
            yield "openable", name


def _object_facts(world: World, locations: dict[str, str]) -> Iterator[tuple[str, ...]]:
    tables = constants().VAL_ACTION_OBJECTS
    for name, thing, place in world.objects:
        yield "objectType", name, f"{thing}Type"
        yield "inReceptacle", name, place
        yield "objectAtLocation", name, locations[place]
        if thing != world.lamp:
            yield "pickupable", name
        for table, things in tables.items():
            if thing in things:
                yield table.lower(), name


def _goal(world: World) -> str:
    thing = world.objects[0][1]
    text = str(goals()[world.kind]["pddl"]).replace("#", "-")
    return text.format(obj=thing, recep=world.goal_kind, toggle=world.lamp)


def _verb(kind: str) -> str:
    """``pick_heat_then_place_in_recep`` heats."""
    return kind.split("_")[1]
