"""``check_environment`` passes good worlds and finds what is wrong with others."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from agentfly_core.testing import call, check_environment, play
from agentfly_core.types import Task

FILE = Path(__file__).parent / "worlds_to_check.py"
TASKS = [Task("one"), Task("two")]


def world(name):
    """Import path of a world."""
    return f"{FILE}:{name}"


def check(name, **options):
    options.setdefault("worker", False)
    check_environment(world(name), TASKS, **options)


def test_a_good_world_passes_by_path_as_class_and_as_instance():
    from agentfly_core.registry import import_target

    check("Counting", worker=True)
    counting = import_target(world("Counting"))
    check_environment(counting, TASKS, worker=False)
    check_environment(counting(), TASKS)


def test_rooms_pass():
    rooms = pytest.importorskip("agentfly_models_tiny.rooms").Rooms
    check_environment(rooms, list(islice(rooms.tasks("train"), 2)), options={"locks": 2})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Refusing", "it raised KeyError"),
        ("Random", "the same actions gave another episode"),
        ("Shared", "the same actions gave another episode"),
        ("ClosesOnce", "it raised RuntimeError: closed already"),
        ("Undead", "a step after the end says that the episode goes on"),
        ("TupleSteps", "it gave ('seen', 0.0, False, {})"),
        ("Sync", "it is not async"),
        ("Sentence", "it gave 'up or wait'"),
        ("NoNumber", "the reward is nan"),
        ("OneId", "two tasks have one id"),
    ],
)
def test_broken_worlds_are_found(name, text, found):
    with found(text):
        check(name)


def test_a_hanging_world(found):
    with found("TimeoutError: no answer within 0.1 s"):
        check("Hanging", timeout=0.1)


def test_a_world_that_is_another_in_a_worker(found):
    with found("the same actions gave another episode") as caught:
        check("OnlyHere", worker=True)
    assert "in a worker process" in str(caught.value)


def test_a_world_that_no_worker_can_import(found):
    class Local:
        pass

    with found("it lacks reset, step, close", "a worker process cannot import"):
        check_environment(Local, TASKS, worker=True)


def test_play_leases_an_environment_by_path():
    chain = play([call("up"), call("up"), call("up"), call("up"), call("up")], environment=world("Counting"))
    assert chain.status.value == "completed"
    assert sum(turn.reward for turn in chain.turns) == 1.0
    assert chain.turns[0].anchor == "0"
