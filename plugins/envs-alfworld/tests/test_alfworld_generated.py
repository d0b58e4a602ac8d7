"""Games of our own: every type, won by its own plan, the same ones everywhere."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from agentfly_envs_alfworld.engine import Engine
from agentfly_envs_alfworld.floorplans import read_room, room_numbers
from agentfly_envs_alfworld.games import SPLITS, TASK_TYPES
from agentfly_envs_alfworld.generation import generated_game
from agentfly_envs_alfworld.goals import Goal
from agentfly_envs_alfworld.tasks import generated_tasks

from agentfly_core.types import UsageError


@pytest.fixture(scope="module")
def engine():
    made = Engine()
    yield made
    made.close()


@pytest.mark.parametrize("kind", TASK_TYPES)
@pytest.mark.parametrize("subset", ["train", "valid_unseen"])
def test_every_type_is_won_by_its_plan_and_not_before(engine, kind, subset):
    (task,) = islice(generated_tasks(subset, 11, (kind,)), 1)
    game = generated_game(task.fields["game"])
    assert f"Your task is to: {sentence(game)}" in engine.start(game)
    for command in game.walkthrough:
        assert not engine.won
        assert command in engine.commands
        engine.step(command)
    assert engine.won


def sentence(game):
    return re.search(r"Your task is to: ([^\"]*)\"", game.grammar).group(1)


def test_the_same_name_is_the_same_game_and_every_number_another():
    first = generated_game("generated:train:7:pick_and_place_simple")
    generated_game.cache_clear()
    assert generated_game("generated:train:7:pick_and_place_simple") == first
    problems = {generated_game(f"generated:train:{n}:pick_and_place_simple").problem for n in range(50)}
    assert len(problems) == 50


def test_many_games_can_be_made_and_never_begin_with_their_goal_reached():
    for subset in SPLITS:
        for task in islice(generated_tasks(subset, 3), 36):
            game = generated_game(task.fields["game"])
            goal = Goal.read(game.problem)
            facts = {tuple(f.lower().split()) for f in re.findall(r"^  \(([^()]+)\)$", game.problem, re.M)}
            kinds = dict(re.findall(r"^  (\S+) - (\S+)$", game.problem.lower(), re.M))
            assert goal.reached(facts, kinds) < goal.conditions
            assert game.walkthrough
            assert not any(a == b for a, b in zip(game.walkthrough, game.walkthrough[1:], strict=False))


def test_unseen_games_play_in_rooms_of_their_own():
    for kind in ("Kitchen", "LivingRoom", "Bedroom", "Bathroom"):
        seen, unseen = room_numbers(kind, False), room_numbers(kind, True)
        assert (len(seen), len(unseen)) == (24, 6)
        assert not set(seen) & set(unseen)


def test_all_120_floor_plans_can_be_read():
    for kind in ("Kitchen", "LivingRoom", "Bedroom", "Bathroom"):
        for number in (*room_numbers(kind, False), *room_numbers(kind, True)):
            room = read_room(number)
            assert room.kind == kind
            assert room.things
            assert all(room.places_for(thing) for thing in room.things)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("generated:train:x:look_at_obj_in_light", "generated:SUBSET:NUMBER:TYPE"),
        ("generated:train:7", "generated:SUBSET:NUMBER:TYPE"),
        ("generated:valid:7:look_at_obj_in_light", "subset of ALFWorld 'valid'"),
        ("generated:train:7:look", "task type of ALFWorld 'look'"),
    ],
)
def test_other_names_are_refused(name, what):
    with pytest.raises(UsageError, match=re.escape(what)):
        generated_game(name)
