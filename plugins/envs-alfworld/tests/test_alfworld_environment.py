"""The environment's contract, its rewards, its wordings and its tools."""

from __future__ import annotations

import asyncio
import json
import pickle
from itertools import islice

import pytest
from agentfly_envs_alfworld.actions import LONGEST, action_tools, as_call, in_the_games_words
from agentfly_envs_alfworld.environment import ALFWorld
from agentfly_envs_alfworld.generation import generated_game
from agentfly_envs_alfworld.tasks import generated_tasks
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.plugins import Plugins
from agentfly_core.testing import check_environment, check_plugin
from agentfly_core.types import Task, ToolContext, ToolStatus, UsageError

TASK = next(generated_tasks("train", 21, ("pick_cool_then_place_in_recep",)))
LAMP = next(generated_tasks("train", 22, ("look_at_obj_in_light",)))


def played(task, actions, **options):
    """The observation and the step results."""

    async def main():
        world = ALFWorld(**options)
        try:
            return await world.reset(task, 0), [await world.step(action) for action in actions]
        finally:
            await world.close()

    return asyncio.run(main())


def plan(task):
    return list(generated_game(task.fields["game"]).walkthrough)


@pytest.mark.parametrize("reward", ["won", "progress"])
def test_it_keeps_the_contract_here_and_in_a_worker(reward):
    check_environment(
        "agentfly_envs_alfworld.environment:ALFWorld",
        [LAMP],
        options={"reward": reward, "max_steps": 8, "show_admissible": reward == "progress"},
        steps=6,
        timeout=120,
        worker=reward == "won",
    )


def test_the_plugin_is_in_order():
    check_plugin("agentfly_envs_alfworld")
    assert "alfworld" in Plugins.load().registry("environments").names()


def test_winning_pays_one_and_ends_the_episode():
    opening, results = played(TASK, [*plan(TASK), "look"])
    assert opening.content.startswith("You are in the middle of a room.")
    assert [r.reward for r in results[:-1]] == [0.0] * (len(plan(TASK)) - 1) + [1.0]
    assert [r.terminated for r in results[:-2]] == [False] * (len(plan(TASK)) - 1)
    assert results[-2].terminated
    assert (results[-1].terminated, results[-1].reward) == (True, 0.0)


def test_progress_pays_each_condition_once_and_takes_it_back():
    *_, cool, go, move = (command for command in plan(TASK) if not command.startswith("open"))
    opened = [c for c in plan(TASK) if c.startswith("open")]
    thing, place = move.removeprefix("move ").split(" to ")
    before = plan(TASK)[: plan(TASK).index(cool)]
    there = [go, *(c for c in opened if c.endswith(place))]
    # In place and not cold: one of two conditions. Taken away again: none. Cold and in place: both.
    actions = [*before[: before.index(next(c for c in before if c.startswith("take"))) + 1], *there, move]
    actions += [f"take {thing} from {place}", *plan(TASK)[plan(TASK).index(cool) - 1 : plan(TASK).index(cool) + 1]]
    actions += [go, move]
    _, results = played(TASK, actions, reward="progress")
    paid = [r.reward for r in results if r.reward]
    assert paid == [0.5, -0.5, 0.5, 0.5]
    assert sum(r.reward for r in results) == 1.0
    assert results[-1].terminated


def test_progress_of_a_look_under_the_lamp_adds_up_to_one():
    _, results = played(LAMP, plan(LAMP), reward="progress")
    assert sum(r.reward for r in results) == 1.0
    assert results[-1].terminated


def test_what_the_game_does_not_understand_costs_where_asked_for():
    commands = [plan(LAMP)[0], "fly away", "go to the moon", *plan(LAMP)[1:]]
    _, results = played(LAMP, commands, invalid_penalty=0.25)
    assert [r.reward for r in results] == [0.0, -0.25, -0.25, *[0.0] * (len(plan(LAMP)) - 2), 1.0]


def test_the_limit_of_steps_cuts_the_episode_off():
    _, results = played(TASK, ["look", "gibberish", "look"], max_steps=2)
    assert [(r.terminated, r.truncated) for r in results[:2]] == [(False, False), (False, True)]
    assert results[1].observation == "Nothing happens."
    assert results[2].done


def test_possible_actions_are_shown_where_asked_for():
    opening, (result,) = played(TASK, ["look"], show_admissible=True)
    for text in (opening.content, result.observation):
        shown = text.partition("\nPossible actions: ")[2].split(", ")
        assert "inventory" in shown
        assert "help" not in shown
        assert all(" " not in action or action.startswith(("go to ", "examine ")) for action in shown)


POSSIBLE = {
    "move mug 1 to desk 2",
    "go to desk 2",
    "take mug 1 from desk 2",
    "use desklamp 1",
    "clean mug 1 with sinkbasin 1",
    "examine desk 2",
    "look",
}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("move mug 1 to desk 2", "move mug 1 to desk 2"),
        ("put mug 1 in/on desk 2", "move mug 1 to desk 2"),
        ("put mug 1 in desk 2", "move mug 1 to desk 2"),
        ("put mug 1 on desk 2", "move mug 1 to desk 2"),
        ("Put the mug 1 onto the desk 2.", "move mug 1 to desk 2"),
        ("  GO   to desk 2 ", "go to desk 2"),
        ("go desk 2", "go to desk 2"),
        ("pick up mug 1 from desk 2", "take mug 1 from desk 2"),
        ("turn on desklamp 1", "use desklamp 1"),
        ("clean mug 1 in sinkbasin 1", "clean mug 1 with sinkbasin 1"),
        ("look at the desk 2", "examine desk 2"),
        ("look around", "look"),
        ("put mug 1 in drawer 9", "put mug 1 in drawer 9"),
        ("move mug 1", "move mug 1"),
        ("", ""),
        ("look" + " " * LONGEST + "x", "look"),
    ],
)
def test_other_wordings_mean_the_games_own(said, meant):
    assert in_the_games_words(said, POSSIBLE) == meant


@given(st.text(max_size=LONGEST * 2))
def test_whatever_is_said_means_a_possible_command_or_itself(said):
    meant = in_the_games_words(said, POSSIBLE)
    assert meant in POSSIBLE or meant == " ".join(said[: LONGEST + 1].split()).rstrip(".!").lower()
    assert in_the_games_words(meant, POSSIBLE) == meant or meant not in POSSIBLE


def test_both_wordings_of_putting_win():
    commands = plan(TASK)
    thing, place = commands[-1].removeprefix("move ").split(" to ")
    for last in (commands[-1], f"put {thing} in/on {place}"):
        _, results = played(TASK, [*commands[:-1], last])
        assert results[-1].terminated


def test_every_command_of_a_plan_has_a_tool_that_writes_it():
    for task in islice(generated_tasks("train", 2), 60):
        for command in plan(task):
            name, arguments = as_call(command)
            tool = next(t for t in action_tools() if t.name == name)
            assert (tool.action or tool.name).format(**tool.check_arguments(arguments)) == command
    with pytest.raises(ValueError, match="no tool"):
        as_call("help")


def test_tools_travel_and_hostile_arguments_change_nothing():
    async def main():
        world = ALFWorld()
        await world.reset(TASK, 0)
        tools = {tool.name: tool for tool in pickle.loads(pickle.dumps(action_tools()))}
        context = ToolContext(environment=world)
        before = world.anchor()
        for hostile in ("{place}", "__import__('os')", "x" * 100_000, "\0", "((((", "desk 1; open drawer 1"):
            outcome = await tools["go_to"].call({"place": hostile}, context)
            assert (outcome.status, outcome.content) == (ToolStatus.OK, "Nothing happens.")
        assert world.anchor() == before
        assert (await tools["take"].call({"object": "mug 1"}, context)).status is ToolStatus.INVALID_ARGUMENTS
        await world.close()

    asyncio.run(main())


def test_the_anchor_is_the_worlds_state_and_not_the_way_to_it():
    async def main():
        world = ALFWorld()
        await world.reset(TASK, 0)
        start, first = world.anchor(), plan(TASK)[0]
        await world.step("inventory")
        assert world.anchor() == start
        await world.step(first)
        there = world.anchor()
        assert there != start
        await world.step(first.replace("go to", "examine"))
        assert world.anchor() == there
        await world.reset(TASK, 1)
        assert world.anchor() == start
        await world.step(first)
        assert world.anchor() == there
        await world.reset(LAMP, 0)
        assert world.anchor() not in (start, there)
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"reward": "score"}, "reward of environment"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"invalid_penalty": -0.1}, "invalid_penalty must be"),
        ({"invalid_penalty": float("nan")}, "invalid_penalty must be"),
    ],
)
def test_wrong_options_are_refused(options, what):
    with pytest.raises(UsageError, match=what):
        ALFWorld(**options)


DAMAGE = [
    ("{", "is no JSON"),
    ("[1]", "lacks pddl_domain"),
    ('{"pddl_domain": 3}', "lacks pddl_domain"),
    (json.dumps({"pddl_domain": "(define", "grammar": "", "pddl_problem": "((("}), "its problem cannot be read"),
]


def test_a_task_without_a_readable_game_is_refused_and_the_world_lives_on(tmp_path):
    broken = tmp_path / "game.tw-pddl"

    async def main():
        world = ALFWorld()
        with pytest.raises(UsageError, match="no game has begun"):
            world.anchor()
        for fields, what in [({}, "no field 'game'"), ({"game": str(tmp_path / "none")}, "cannot be read")]:
            with pytest.raises(UsageError, match=what):
                await world.reset(Task("t", fields=fields), 0)
        for text, what in DAMAGE:
            broken.write_text(text)
            with pytest.raises(UsageError, match=what):
                await world.reset(Task("t", fields={"game": str(broken)}), 0)
        assert (await world.reset(TASK, 0)).content
        await world.close()
        await world.close()

    asyncio.run(main())
