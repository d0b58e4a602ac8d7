from __future__ import annotations

import asyncio
import pickle
import random
from itertools import islice, pairwise

import pytest
from agentfly_models_tiny.layout import make_layout
from agentfly_models_tiny.room_demonstrations import room_demonstrations
from agentfly_models_tiny.rooms import Rooms

from agentfly_core.resources import InProcessCoordinator, ObjectProvider, ResourceManager, WorkerProvider
from agentfly_core.types import Environment, ResourceSpec, StepResult, Task, ToolContext, ToolStatus, UsageError

TASK = Task("t", fields={"world": 7})


def test_it_is_an_environment():
    assert isinstance(Rooms(), Environment)


@pytest.mark.parametrize(("rooms", "locks"), [(2, 1), (3, 1), (5, 2), (8, 4)])
def test_every_world_is_won_by_its_plan(rooms, locks):
    world = Rooms(rooms=rooms, locks=locks, max_steps=200)
    lengths = []
    for task in islice(Rooms.tasks("train", seed=rooms), 200):
        world.begin(task, 0)
        plan = world.plan()
        lengths.append(len(plan))
        for number, action in enumerate(plan, 1):
            assert action in world.admissible_actions()
            result = world.act(action)
            assert result.terminated is (number == len(plan))
            assert result.reward == float(number == len(plan))
    # 3 actions a lock (unlock, open, take), 2 for the first box, and a walk before every locked box
    assert min(lengths) >= 3 * locks + 2 + locks >= 6


def test_a_plan_wins_from_wherever_one_has_wandered_to():
    rng = random.Random(1)
    world = Rooms(rooms=4, locks=2, max_steps=10_000)
    for task in islice(Rooms.tasks("eval"), 30):
        world.begin(task, 0)
        for _ in range(20):
            actions = [a for a in world.admissible_actions() if a != f"take {world.layout.treasure}"]
            world.act(rng.choice(actions))
        results = [world.act(action) for action in world.plan()]
        assert [r.terminated for r in results] == [False] * (len(results) - 1) + [True]


def test_admissible_actions_change_the_state_and_others_do_not():
    rng = random.Random(2)
    world = Rooms(rooms=3, locks=2, max_steps=10_000)
    everything = {"go up", "take sword", "open", "unlock red box", "dance", "", "look at me", "take", "go"}
    for task in islice(Rooms.tasks("train"), 20):
        world.begin(task, 0)
        for _ in range(15):
            admissible = world.admissible_actions()
            for action in everything:
                before = world.anchor()
                assert world.act(action).reward == 0
                assert world.anchor() == before
            action = rng.choice(admissible)
            before = world.anchor()
            result = world.act(action)
            assert (world.anchor() != before) is (action != "look")
            if result.done:
                break


def test_a_hand_played_episode():
    world = Rooms(rooms=3, locks=1)
    world.begin(TASK, 0)
    layout = world.layout
    (locked, key), treasure = next(iter(layout.locks.items())), layout.treasure
    first = layout.items[key]
    assert layout.items == {key: first, treasure: locked}
    world.room = layout.boxes[locked]
    assert world.act(f"open {locked}") == StepResult("It is locked.")
    assert world.act(f"unlock {locked} with {key}") == StepResult("You do not have that.")
    assert world.act(f"take {treasure}") == StepResult("There is no such thing.")
    world.room = layout.boxes[first]
    assert world.act(f"take {key}") == StepResult("There is no such thing.")
    assert world.act(f"  OPEN   {first} ") == StepResult(f"Inside: {key}.")
    assert world.act(f"open {first}") == StepResult("It is open.")
    assert world.act(f"take {key}") == StepResult("Taken.")
    assert world.act(f"unlock {first} with {key}") == StepResult("It is not locked.")
    world.room = layout.boxes[locked]
    assert world.act(f"unlock {locked} with {key}") == StepResult("Unlocked.")
    assert f"a closed {locked}" in world.act("look").observation
    assert world.act(f"open {locked}") == StepResult(f"Inside: {treasure}.")
    assert world.act(f"take {treasure}") == StepResult("Taken.", reward=1.0, terminated=True)


def test_the_wrong_key_does_not_fit():
    world = Rooms(rooms=3, locks=2)
    world.begin(TASK, 0)
    box = next(iter(world.layout.locks))
    wrong = next(k for b, k in world.layout.locks.items() if b != box)
    world.room, world.carried = world.layout.boxes[box], [wrong]
    assert world.act(f"unlock {box} with {wrong}") == StepResult("It does not fit.")
    assert f"unlock {box} with {wrong}" not in world.admissible_actions()


def test_an_episode_is_cut_off_after_its_steps():
    world = Rooms(max_steps=3)
    world.begin(TASK, 0)
    assert [world.act("look").truncated for _ in range(3)] == [False, False, True]


def test_a_long_action_is_no_problem():
    world = Rooms()
    world.begin(TASK, 0)
    assert world.act("take " + "x" * 1_000_000).observation == "Nothing happens."


def test_the_world_depends_on_the_task_alone():
    one, two = Rooms(), Rooms()
    assert one.begin(TASK, 1) == two.begin(TASK, 2)
    assert one.layout == two.layout
    assert one.begin(Task("t", fields={"world": 8}), 1) != two.begin(TASK, 1)
    assert one.begin(Task("named"), 0) == two.begin(Task("named"), 5)


def test_splits_are_disjoint_endless_and_seeded():
    train = [t.fields["world"] for t in islice(Rooms.tasks("train", seed=1), 2000)]
    held = [t.fields["world"] for t in islice(Rooms.tasks("eval", seed=1), 2000)]
    assert {w % 2 for w in train} == {0}
    assert {w % 2 for w in held} == {1}
    assert len(set(train)) == len(set(held)) == 2000
    assert held == [t.fields["world"] for t in islice(Rooms.tasks("eval", seed=2), 2000)]
    assert not set(train) & {t.fields["world"] for t in islice(Rooms.tasks("train", seed=2), 2000)}
    ids = [t.id for t in islice(Rooms.tasks("train"), 50)]
    assert len(set(ids)) == 50


@pytest.mark.parametrize("options", [{"rooms": 1}, {"rooms": 9}, {"locks": 0}, {"locks": 5}, {"max_steps": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(UsageError, match="environment 'rooms'"):
        Rooms(**options)


def test_layouts_lead_back_and_never_repeat_a_room_in_a_row():
    for seed in range(100):
        layout = make_layout(seed, 5, 3)
        assert len(layout.exits) == 5
        for room, ways in layout.exits.items():
            assert all(room in layout.exits[other].values() for other in ways.values())
        chain = [layout.items[item] for item in [*layout.locks.values(), layout.treasure]]
        places = [layout.boxes[box] for box in chain]
        assert all(a != b for a, b in pairwise(places))


def test_the_tools_do_what_the_text_does():
    async def main():
        world = Rooms()
        tools = {tool.name: tool for tool in pickle.loads(pickle.dumps(Rooms.tools()))}
        assert set(tools) == {"go", "open", "unlock", "take", "look"}
        await world.reset(TASK, 0)
        context = ToolContext(environment=world)
        for action in world.plan():
            verb, _, rest = action.partition(" ")
            names = list(tools[verb].properties)
            arguments = dict(zip(names, rest.split(" with "), strict=True))
            outcome = await tools[verb].call(arguments, context)
            assert outcome.status is ToolStatus.OK
        assert (outcome.content, outcome.final) == ("Taken.", True)
        refused = await tools["go"].call({"direction": "up"}, context)
        assert refused.status is ToolStatus.INVALID_ARGUMENTS

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["object", "worker"])
def test_it_works_in_this_process_and_in_a_worker(kind):
    async def main():
        providers = {"object": ObjectProvider(), "worker": WorkerProvider()}
        manager = ResourceManager(InProcessCoordinator({kind: 1}), providers)
        spec = ResourceSpec.make(kind, "agentfly_models_tiny.rooms:Rooms", options={"rooms": 3, "locks": 2})
        for _ in range(2):  # the second episode reuses the instance
            async with manager.lease(spec, owner="chain") as lease:
                world = lease.resource
                opening = await world.call("reset", TASK, 0)
                assert opening.content.startswith("Find the ")
                while True:
                    action = (await world.call("plan"))[0]
                    assert action in await world.call("admissible_actions")
                    result = await world.call("step", action)
                    if result.terminated:
                        break
                assert result.reward == 1.0
        await manager.close()

    asyncio.run(main())


def test_demonstrations_are_whole_episodes_and_mostly_win():
    rows = list(islice(room_demonstrations(3), 100))
    wins = 0
    for row in rows:
        roles = [m["role"] for m in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        wins += row["messages"][-1]["content"].split()[1:] == row["messages"][0]["content"].split(".")[0].split()[2:]
    assert 60 <= wins < 100
    assert rows == list(islice(room_demonstrations(3), 100))
    perfect = next(iter(room_demonstrations(3, wander=0.0)))
    assert len(perfect["messages"]) <= 2 * 10
