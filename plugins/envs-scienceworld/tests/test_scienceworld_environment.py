"""The environment on the real simulator: its contract, its rewards, its ends."""

from __future__ import annotations

import asyncio
import json

import pytest
from agentfly_envs_scienceworld import catalogue
from agentfly_envs_scienceworld.command import command
from agentfly_envs_scienceworld.environment import ScienceWorld
from agentfly_envs_scienceworld.simulator import Simulator
from click.testing import CliRunner

from agentfly_core.testing import check_environment
from agentfly_core.types import ResourceError, Task, UsageError

PLANT = Task("plant", fields={"task": "find-plant", "variation": 0})
LIVES = Task("lives", fields={"task": "lifespan-longest-lived", "variation": 2})

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world():
    """One for all tests of this file: a warm instance is used again."""
    made = ScienceWorld()
    yield made
    asyncio.run(made.close())


def played(world, task, actions):
    async def main():
        return await world.reset(task, 0), [await world.step(action) for action in actions]

    return asyncio.run(main())


class FewTools(ScienceWorld):
    """The check begins an episode for each tool; all of them are checked elsewhere without a simulator."""

    @staticmethod
    def tools():
        return ScienceWorld.tools()[6:8]


def test_it_keeps_the_contract(java):
    check_environment(
        f"{__file__}:FewTools",
        [LIVES],
        options={"max_steps": 5, "show_commands": True},
        steps=3,
        timeout=200,
        worker=False,  # other tests run it there
    )


def test_a_gold_path_earns_one_and_ends_the_episode(world):
    opening, _ = played(world, PLANT, [])
    assert opening.content.startswith("Your task is to find a(n) plant. First, focus on the thing.")
    assert "This room is called the hallway." in opening.content
    path = world.gold_path()
    results = [asyncio.run(world.step(action)) for action in [*path, "wait"]]
    assert sum(r.reward for r in results) == 1.0
    assert sum(reversed([r.reward for r in results])) == 1.0
    assert [r.done for r in results] == [False] * (len(path) - 1) + [True, True]
    assert results[-2].info == {"score": 100, "steps": len(path), "failed": False}
    assert results[-1].reward == 0.0
    assert all(r.reward >= 0 for r in results)


@pytest.mark.parametrize(("failure", "total"), [("score", -1.0), ("zero", 0.0), ("keep", None)])
def test_a_failure_ends_the_episode_and_adds_up_as_asked(world, failure, total):
    world._failure = failure
    try:
        _, results = played(world, PLANT, ["go to greenhouse", "focus on agent", "wait"])
    finally:
        world._failure = "score"
    step, lost, after = results
    assert step.reward > 0
    assert (lost.terminated, lost.info["failed"], lost.info["score"]) == (True, True, -100)
    assert step.reward + lost.reward == (step.reward if total is None else total)
    assert (after.terminated, after.reward) == (True, 0.0)


def test_what_makes_no_sense_changes_nothing_and_steps_are_limited(java):
    made = ScienceWorld(max_steps=3, simplifications=[], invalid_penalty=0.25, show_commands=True)
    opening, results = played(made, PLANT, ["dance", "\0\ud800" + "x" * 10_000, "open door to kitchen"])
    asyncio.run(made.close())
    assert "(that is closed)" in opening.content
    assert "go OBJ" in opening.content.partition("Commands, with names of objects for OBJ: ")[2]
    assert results[0].observation == results[1].observation == "No known action matches that input."
    assert results[2].observation == "The door is now open."
    assert [(r.terminated, r.truncated) for r in results] == [(False, False)] * 2 + [(False, True)]
    assert [r.reward for r in results[:2]] == [-0.25, -0.25]
    assert results[2].reward >= 0


def test_anchors_and_possible_actions_tell_states_apart(world):
    played(world, PLANT, [])
    start, possible = world.anchor(), world.admissible_actions()
    assert "open door to kitchen" in possible or "close door to kitchen" in possible
    anchors = []
    for action in ("look at picture", "look at orange", "go to kitchen"):
        asyncio.run(world.step(action))
        anchors.append(world.anchor())
    assert anchors[0] == anchors[1] != anchors[2]
    played(world, PLANT, [])
    assert world.anchor() == start
    assert world.admissible_actions() == possible


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "no task of ScienceWorld"),
        ({"task": "boil", "variation": 30}, "from 0 to 29"),
        ({"task": "boil", "variation": "3"}, "from 0 to 29"),
        ({"task": "boil"}, "from 0 to 29"),
    ],
)
def test_tasks_that_are_none_are_refused_and_the_world_lives_on(world, fields, what):
    with pytest.raises(UsageError, match=what):
        played(world, Task("t", fields=fields), [])
    with pytest.raises(UsageError, match="no episode has begun"):
        world.anchor()
    assert played(world, LIVES, [])[0].content


def test_a_simulator_that_died_is_an_error_and_not_an_observation(java):
    simulator = Simulator()
    simulator.load("boil", 0, ["easy"])
    with pytest.raises(ResourceError, match=r"the simulator failed: .*IndexOutOfBounds"):
        simulator.load("boil", 99_999, ["easy"], gold=True)
    simulator._process.kill()
    simulator._process.wait()
    with pytest.raises(ResourceError, match="the simulator is gone"):
        simulator.step("look around")
    simulator.close()
    simulator.close()


def test_the_catalogue_is_the_simulators_own(world):
    played(world, PLANT, [])
    java = world._simulator._java
    assert {str(name) for name in java.getTaskNames()} == set(catalogue.TASKS)
    counts = {name: int(java.getTaskMaxVariations(name)) for name in catalogue.TASKS}
    assert counts == {name: count for name, (_, count) in catalogue.TASKS.items()}
    for name in ("boil", "find-plant", "lifespan-longest-lived", "identify-life-stages-2"):
        world._simulator.load(name, 0, ["easy"])
        own = [list(java.getVariationsTrain()), list(java.getVariationsDev()), list(java.getVariationsTest())]
        assert own == [list(catalogue.variations(name, subset)) for subset in catalogue.SUBSETS]


def test_demonstrations_are_written_as_sft_takes_them(java, tmp_path):
    output = tmp_path / "demos.jsonl"
    arguments = ["demos", "--output", str(output), "--task", "7-1", "--task", "find-non-living-thing"]
    done = CliRunner().invoke(command, [*arguments, "--limit", "2"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", *["assistant", "tool"] * (len(roles) // 2 - 1), "assistant"]
        assert row["messages"][0]["content"].startswith("Your task is to find")
        calls = [m["tool_calls"][0]["function"]["name"] for m in row["messages"] if m["role"] == "assistant"]
        assert "focus_on" in calls
    assert CliRunner().invoke(command, ["demos", "--output", str(tmp_path / "demos.txt")]).exception


def test_demonstrations_that_fail_leave_the_file_as_it_was(tmp_path, monkeypatch):
    output = tmp_path / "demos.jsonl"
    output.write_text("before")
    nowhere = CliRunner().invoke(command, ["demos", "--output", str(tmp_path / "none" / "x.jsonl"), "--task", "7-1"])
    assert isinstance(nowhere.exception, UsageError), nowhere.output
    assert "none/x.jsonl cannot be written: No such file" in str(nowhere.exception)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    failed = CliRunner().invoke(command, ["demos", "--output", str(output), "--task", "7-1"])
    assert isinstance(failed.exception, UsageError), failed.output
    assert "needs Java" in str(failed.exception)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("demos.jsonl", "before")]
