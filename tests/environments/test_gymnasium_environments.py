"""Gymnasium's own environments, and any class of that shape, played as text worlds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.environments.gymnasium import GymnasiumEnvironment
from agentfly_core.rewards.process import environment_return
from agentfly_core.testing import check_environment, play
from agentfly_core.types import ChainStatus, ResourceSpec, StepResult, Task, UsageError

LAKE = {
    "id": "FrozenLake-v1",
    "arguments": {"is_slippery": False, "desc": ["SF", "FG"]},
    "actions": ["left", "down", "right", "up"],
}
TARGET = "agentfly_core.environments.gymnasium:GymnasiumEnvironment"


class Echo:
    """Without Gymnasium, of the shape that GEM and BALROG share: text in, text (here in a mapping) out."""

    def __init__(self, length: int = 3) -> None:
        self.length, self.closed = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.said: list[str] = []
        return {"text": {"long": f"Speak (seed {seed}, {options})."}, "image": None}, {"commands": ["aye", "nay"]}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == "crash":
            raise RuntimeError("the stage collapsed")
        self.said.append(action)
        seen = {"text": {"long": " ".join(self.said)}, "image": None}
        return seen, 0.25, action == "end", len(self.said) >= self.length, {"commands": []}

    def close(self) -> None:
        self.closed += 1


ECHO = {"factory": f"{__file__}:Echo", "text": "text.long"}


def played(options: dict[str, Any], actions: list[str], task: Task | None = None, seed: int = 5) -> list[Any]:
    """The first observation's text, then what each action led to."""

    async def main() -> list[Any]:
        world = GymnasiumEnvironment(**options)
        try:
            first = await world.reset(task or Task("t"), seed)
            return [first.content, *[await world.step(action) for action in actions]]
        finally:
            await world.close()

    return asyncio.run(main())


def test_a_class_of_that_shape_is_a_text_world():
    first, *results = played(ECHO, ["aye", "b", "c", "d"])
    assert first == "Speak (seed 5, None)."
    assert results == [
        StepResult("aye", 0.25),
        StepResult("aye b", 0.25),
        StepResult("aye b c", 0.25, truncated=True),
        StepResult("The episode is over.", terminated=True),
    ]
    assert played(ECHO, ["end"])[1] == StepResult("end", 0.25, terminated=True)


def test_the_tasks_fields_win_and_instructions_come_first():
    task = Task("t", fields={"seed": 77, "options": {"room": 2}})
    (first,) = played({**ECHO, "instructions": "Say something."}, [], task)
    assert first == "Say something.\n\nSpeak (seed 77, {'room': 2})."
    assert played(ECHO, [], seed=2**31 + 3)[0] == "Speak (seed 3, None)."
    with pytest.raises(UsageError, match="'seed' must be a whole number from 0"):
        played(ECHO, [], Task("t", fields={"seed": "7"}))


def test_possible_actions_come_from_info():
    async def main() -> None:
        world = GymnasiumEnvironment(**ECHO, admissible="commands")
        assert world.admissible_actions() == []
        await world.reset(Task("t"), 0)
        assert world.admissible_actions() == ["aye", "nay"]
        await world.step("aye")
        assert world.admissible_actions() == []
        await world.close()
        await world.close()

    asyncio.run(main())


def test_errors_of_the_environment_are_its_own():
    with pytest.raises(RuntimeError, match="the stage collapsed"):
        played(ECHO, ["crash"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "needs the option 'id' or the option 'factory'"),
        ({"id": "a", "factory": "b:c"}, "not both"),
        ({"id": "a", "actions": ["go", "Go"]}, "one name"),
        ({"factory": "no_such_module_at_all:make"}, "No module named"),
        ({"factory": f"{__file__}:Nothing"}, "Nothing"),
        ({"factory": f"{__file__}:Echo", "arguments": {"size": 3}}, "unexpected keyword argument 'size'"),
        ({"factory": f"{__file__}:Echo"}, "a mapping with text, image"),
        ({"factory": f"{__file__}:Echo", "text": "text.short"}, r"has no 'text\.short'"),
    ],
)
def test_wrong_options_are_one_clear_error(options, what):
    with pytest.raises(UsageError, match=what):
        played(options, [])


def test_tasks_of_training_follow_the_seed_and_those_of_evaluation_do_not():
    def seeds(split, seed):
        tasks = iter(GymnasiumEnvironment.tasks(split, seed))
        return [next(tasks).fields["seed"] for _ in range(3)]

    assert seeds("train", 0) == seeds("train", 0) != seeds("train", 1)
    assert seeds("eval", 0) == seeds("eval", 1) != seeds("train", 0)
    assert all(0 <= seed < 2**31 for seed in seeds("train", 2**62))


@pytest.fixture
def gymnasium():
    return pytest.importorskip("gymnasium", reason="Gymnasium is not installed")


def test_a_discrete_space_is_played_by_the_names_of_its_actions(gymnasium):
    first, odd, right, down = played({**LAKE, "render": True}, ["swim", " Right", "down"])
    assert first.split() == ["[S]F", "FG"]
    assert odd == StepResult("This is no possible action. Say left or down or right or up.")
    assert right.observation.split() == ["(Right)", "S[F]", "FG"]
    assert (right.reward, right.done) == (0.0, False)
    assert (down.reward, down.terminated, down.truncated) == (1.0, True, False)
    plain, won = played({"id": "FrozenLake-v1", "arguments": LAKE["arguments"]}, ["2"])
    assert (plain, won.observation) == ("0", "1")


def test_the_action_mask_and_the_time_limit_count(gymnasium):
    async def main():
        world = GymnasiumEnvironment(id="Taxi-v4", arguments={"max_episode_steps": 2}, actions=list("snewpd"))
        await world.reset(Task("t"), 3)
        possible = world.admissible_actions()
        assert set(possible) < set("snewpd")
        assert possible
        results = [await world.step(action) for action in ("s", "n")]
        assert [(r.terminated, r.truncated) for r in results] == [(False, False), (False, True)]
        assert [r.reward for r in results] == [-1.0, -1.0]
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"id": "NoSuchGame-v0"}, "NoSuchGame"),
        ({"id": "no_such_module_at_all:Game-v0"}, "no_such_module_at_all"),
        ({"id": "Pendulum-v1"}, "space Box cannot be said in text"),
        ({**LAKE, "actions": ["go"]}, "1 names for 4 actions"),
        ({"id": "CartPole-v1", "arguments": {"speed": 3}}, "cannot be made"),
    ],
)
def test_what_gymnasium_refuses_or_text_cannot_say_is_one_clear_error(gymnasium, options, what):
    with pytest.raises(UsageError, match=what):
        played(options, [])


def test_gymnasium_keeps_the_contract_here_and_in_a_worker(gymnasium):
    tasks = [Task("a"), Task("b", fields={"seed": 12})]
    slippery = {"id": "FrozenLake-v1", "actions": LAKE["actions"], "render": True}
    check_environment(GymnasiumEnvironment, tasks, options=slippery, timeout=120)


def test_a_chain_plays_gymnasium(gymnasium):
    spec = ResourceSpec.make("object", TARGET, options={**LAKE, "render": True})
    trajectory = play(
        ["right", "dance", "down"],
        Task("t"),
        agent=TextActionAgent(),
        environment=spec,
        reward=environment_return,
        max_turns=5,
        timeout=240.0,
    )
    assert (trajectory.status, trajectory.reward) == (ChainStatus.COMPLETED, 1.0)
    assert [turn.reward for turn in trajectory.turns] == [0.0, 0.0, 1.0]
