"""Chains in environments, leased from the real resource manager."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.recipes.schema import Recipe
from agentfly_core.resources.coordinator import InProcessCoordinator
from agentfly_core.resources.local import ObjectProvider
from agentfly_core.resources.manager import ResourceManager
from agentfly_core.rollout.environments import static_tools
from agentfly_core.tools import tool
from agentfly_core.tools.base import DEFAULT_MAX_OUTPUT_CHARS
from agentfly_core.tools.results import cut
from agentfly_core.types import ChainStatus, ResourceSpec, Task, ToolStatus, UsageError, derive_seed

WORLDS = Path(__file__).with_name("worlds.py")


def spec(world: str, **options: Any) -> ResourceSpec:
    return ResourceSpec.make("object", f"{WORLDS}:{world}", options=options)


class Held:
    """A resource manager, and how much of it is held."""

    def __init__(self, capacity: int = 4) -> None:
        self.coordinator = InProcessCoordinator({"object": capacity})
        self.manager = ResourceManager(self.coordinator, {"object": ObjectProvider()}, max_idle=2)

    def granted(self) -> int:
        return sum(row.granted + row.waiting for row in asyncio.run(self.coordinator.status()) if row.kind == "object")


@pytest.fixture
def held() -> Iterator[Held]:
    holder = Held()
    yield holder
    assert holder.granted() == 0
    asyncio.run(holder.manager.close())


Player = Callable[..., Any]


@pytest.fixture
def walk(kit: Any, held: Held) -> Player:
    """Play one chain of text actions in a world."""

    def play(*actions: Any, world: str = "Corridor", task: Any = None, **options: Any) -> Any:
        options = {"agent": TextActionAgent(), "reward": None, "environment": spec(world)} | options
        with kit.engine(kit.scripted(*actions), resources=held.manager, **options) as engine:
            return engine.submit(task or kit.task(), 0, "g").result(timeout=30)

    return play


def test_step_rewards_flow_into_the_turns_and_are_summed(walk: Player) -> None:
    trajectory = walk("right", "left", "right", "right", "never")
    assert trajectory.status is ChainStatus.COMPLETED
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.0, 0.25, 1.0]
    assert (trajectory.scored, trajectory.reward) == (True, 1.5)
    assert trajectory.turn_rewards == (0.25, 0.0, 0.25, 1.0)
    assert [turn.anchor for turn in trajectory.turns] == ["cell0", "cell1", "cell1", "cell2"]
    assert [m["content"] for m in trajectory.messages] == [
        "Go.", "Cell 0 of 3.", "right", "Cell 1.", "left", "Nothing happens in cell 1.", "right", "Cell 2.", "right",
    ]  # fmt: skip


def test_a_reward_replaces_the_sum_and_sees_the_living_environment(kit: Any, walk: Player) -> None:
    async def where(trajectory: Any, context: Any) -> float:
        return float((await context.environment.anchor())[-1])

    trajectory = walk("right", "right", reward=kit.FixedReward(where), max_turns=2)
    assert trajectory.status is ChainStatus.MAX_TURNS
    assert (trajectory.reward, trajectory.turn_rewards) == (2.0, (0.0, 2.0))
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("explode", "step raised RuntimeError: boom"),
        ("junk", "step returned tuple, not StepResult"),
        ("words", "step gave the reward 'much', which is no number"),
        (
            "wrap",
            "step gave as observation Observation(content='a', info={}): it must be text, or text and image parts",
        ),
    ],
)
def test_a_broken_step_is_an_environment_error(walk: Player, action: str, reason: str) -> None:
    trajectory = walk("right", action)
    assert trajectory.status is ChainStatus.ENVIRONMENT_ERROR
    assert trajectory.error == reason
    assert (trajectory.scored, trajectory.reward) == (False, 0.0)
    assert trajectory.turn_rewards == (0.0, 0.0)
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.0]
    assert len(trajectory.segments[0].spans) == 2


def test_a_reward_that_is_not_finite_leaves_the_chain_unscored(walk: Player) -> None:
    trajectory = walk("nan", "right", max_turns=2)
    assert math.isnan(trajectory.turns[0].reward)
    assert (trajectory.scored, trajectory.reward, trajectory.turn_rewards) == (False, 0.0, (0.0, 0.0))
    assert "not finite" in trajectory.unscored_reason


def test_a_reset_that_raises_and_a_world_that_cannot_start(kit: Any, walk: Player) -> None:
    trajectory = walk("never", task=kit.task(reset="raises"))
    assert (trajectory.status, trajectory.turns) == (ChainStatus.ENVIRONMENT_ERROR, ())
    assert trajectory.error == "reset raised RuntimeError: the door is stuck"
    trajectory = walk("never", world="broken")
    assert (trajectory.status, trajectory.turns) == (ChainStatus.ENVIRONMENT_ERROR, ())
    assert "no such world" in trajectory.error


def test_a_broken_world_is_not_handed_to_another_chain(kit: Any, held: Held) -> None:
    backend = kit.scripted(lambda r: "explode" if r.chain_key[1] == 0 else "right")
    options = {"agent": TextActionAgent(), "reward": None, "environment": spec("Corridor"), "max_concurrency": 1}
    with kit.engine(backend, resources=held.manager, **options) as engine:
        first = engine.submit(kit.task(), 0, "g").result(30)
        assert held.manager.status()["kinds"]["object"]["idle"] == 0
        second = engine.submit(kit.task(), 1, "g").result(30)
        assert held.manager.status()["kinds"]["object"]["idle"] == 1
    assert first.status is ChainStatus.ENVIRONMENT_ERROR
    assert second.status is ChainStatus.COMPLETED


def test_chains_of_a_group_play_the_same_episode(kit: Any, held: Held) -> None:
    seen: list[tuple[str, int]] = []

    class Spy(TextActionAgent):
        def start(self, task: Task, observation: Any, tools: Any) -> Any:
            seen.append((task.id, observation.info["seed"]))
            return super().start(task, observation, tools)

    options = {"agent": Spy(), "reward": None, "environment": spec("Seeded"), "max_turns": 1}
    with kit.engine(kit.scripted("x"), resources=held.manager, seed=3, **options) as engine:
        list(engine.run([kit.task(0), kit.task(1)], chains=3, label="s"))
    expected = {(f"t{n}", derive_seed(3, f"s/t{n}", f"t{n}", "environment")) for n in (0, 1)}
    assert set(seen) == expected
    assert len(seen) == 6


def test_steps_inside_a_static_tool_reward_the_turn_and_end_the_chain(kit: Any, walk: Player) -> None:
    right = '!walk {"direction": "right"}'
    trajectory = walk(f"{right}\n{right}", f"{right}\n{right}", world="ToolCorridor", agent=ToolCallingAgent())
    assert trajectory.status is ChainStatus.COMPLETED
    assert [turn.reward for turn in trajectory.turns] == [0.5, 1.0]
    assert [o.content for o in trajectory.turns[1].outcomes] == ["Cell 3.", "The episode is over."]
    assert trajectory.reward == 1.5


def test_a_step_that_breaks_inside_a_tool_is_an_environment_error(walk: Player) -> None:
    trajectory = walk('!walk {"direction": "explode"}', world="ToolCorridor", agent=ToolCallingAgent())
    assert trajectory.status is ChainStatus.ENVIRONMENT_ERROR
    assert trajectory.turns[0].outcomes[0].status is ToolStatus.FAILED


def test_a_tool_of_the_instance_runs_beside_it(kit: Any, walk: Player) -> None:
    trajectory = walk("!where {}", "bye", world="OwnToolCorridor", agent=ToolCallingAgent(), reward=kit.FixedReward())
    assert trajectory.turns[0].outcomes[0].content == "in cell 0"
    assert "where" in kit.CharTemplate().decode(trajectory.segments[0].token_ids[:10])


def test_long_observations_lose_their_middle_as_tool_output_does(walk: Player) -> None:
    options = {"world": "Verbose", "max_turns": 4, "max_observation_chars": 200}
    trajectory = walk("parts", "more", "surrogate", "x", **options)
    first, parts, more, odd = [m["content"] for m in trajectory.messages if m["role"] == "user"][1:]
    # 140 characters are kept beside the note of how many are not.
    assert (
        first
        == cut("a" * 100 + "m" * 500 + "z" * 100, 200)
        == (f"{'a' * 70}\n[... 560 characters left out ...]\n{'z' * 70}")
    )
    assert [p["text"] for p in parts] == [f"{'b' * 70}\n[... 260 characters left out ...]\n{'b' * 70}", "short"]
    assert more == f"{'c' * 70}\n[... 61 characters left out ...]\n{'c' * 70}"
    assert odd == "\ufffd"
    whole = walk("parts", "more", **options | {"max_observation_chars": 700, "max_turns": 2})
    assert [len(m["content"]) for m in whole.messages if m["role"] == "user"][1] == 700


def test_observations_have_the_limit_of_tool_output(walk: Player) -> None:
    assert Recipe.model_fields["rollout"].default.max_observation_chars == DEFAULT_MAX_OUTPUT_CHARS == 16_000
    with pytest.raises(UsageError, match="max_observation_chars must be greater than 0"):
        walk("right", max_observation_chars=0)


def test_the_agent_opens_with_its_own_tools_and_the_environments(kit: Any, walk: Player) -> None:
    class Listing(ToolCallingAgent):
        def start(self, task: Task, observation: Any, tools: Any) -> Any:
            return [{"role": "user", "content": f"{observation.content} {', '.join(tools)}"}]

    @tool
    def sing() -> str:
        """Sing."""
        return "la"

    trajectory = walk("bye", world="OwnToolCorridor", agent=Listing(), tools=[sing], reward=kit.FixedReward())
    assert trajectory.messages[0]["content"] == "Cell 0 of 3. sing, where"


def test_two_tools_of_one_name_are_refused_unless_they_are_one_tool(walk: Player) -> None:
    @tool(name="walk")
    def other(direction: str) -> str:
        """Another one."""
        return direction

    options = {"world": "ToolCorridor", "agent": ToolCallingAgent()}
    trajectory = walk("never", tools=[other], **options)
    assert trajectory.status is ChainStatus.ABORTED
    assert "two tools are named 'walk'" in trajectory.error
    same = static_tools(f"{WORLDS}:ToolCorridor")
    assert same is not None
    assert walk("bye", tools=same, **options).status is ChainStatus.COMPLETED


def test_a_text_agent_without_an_environment_is_told_so(kit: Any) -> None:
    trajectory = kit.play(kit.scripted("right"), agent=TextActionAgent())
    assert trajectory.status is ChainStatus.ABORTED
    assert "set `environment`" in trajectory.error


def test_a_hanging_step_times_out_and_the_world_is_replaced(held: Held, walk: Player) -> None:
    trajectory = walk("right", "hang", chain_timeout=0.3)
    assert trajectory.status is ChainStatus.TIMEOUT
    assert (trajectory.scored, trajectory.unscored_reason) == (False, "the chain ran out of time")
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.0]
    assert held.manager.status()["kinds"]["object"]["idle"] == 0


def test_a_synchronous_world_blocks_nobody_else(kit: Any) -> None:
    held = Held(capacity=10)
    options = {"agent": TextActionAgent(), "reward": None, "environment": spec("Meeting")}
    with kit.engine(kit.scripted("x"), resources=held.manager, **options) as engine:
        done = list(engine.run([kit.task()], chains=10))
    assert [t.reward for t in done] == [1.0] * 10
    asyncio.run(held.manager.close())


def test_waiting_for_an_environment_is_not_the_chains_time(kit: Any) -> None:
    held = Held(capacity=1)
    options = {"agent": TextActionAgent(), "reward": None, "environment": spec("Blocking"), "chain_timeout": 1.5}
    with kit.engine(kit.scripted("x"), resources=held.manager, **options) as engine:
        done = list(engine.run([kit.task()], chains=10))
    assert [t.status for t in done] == [ChainStatus.COMPLETED] * 10
    assert held.granted() == 0
    asyncio.run(held.manager.close())


def test_cancelling_a_future_gives_the_environment_back(kit: Any, held: Held) -> None:
    options = {"agent": TextActionAgent(), "reward": None, "environment": spec("Corridor")}
    with kit.engine(kit.scripted("hang"), resources=held.manager, **options) as engine:
        futures = [engine.submit(kit.task(), n, "g") for n in range(6)]
        kit.wait_until(lambda: held.granted() == 6)
        for future in futures:
            assert future.cancel()
        kit.wait_until(lambda: held.granted() == 0)


def test_a_world_in_a_worker_process(kit: Any) -> None:
    """The static tool runs here and steps there; the instance's tool runs there."""
    from agentfly_core.resources.worker import WorkerProvider

    coordinator = InProcessCoordinator({"worker": 1})
    manager = ResourceManager(coordinator, {"worker": WorkerProvider()})
    right = '!walk {"direction": "right"}'

    def play(world: str, *turns: str) -> Any:
        target = ResourceSpec.make("worker", f"{WORLDS}:{world}")
        options = {"reward": None, "environment": target, "resources": manager}
        with kit.engine(kit.scripted(*turns), **options) as engine:
            return engine.submit(kit.task(), 0, "g").result(60)

    try:
        trajectory = play("ToolCorridor", right, f"{right}\n{right}")
        assert (trajectory.status, trajectory.reward) == (ChainStatus.COMPLETED, 1.5)
        assert [turn.anchor for turn in trajectory.turns] == ["cell0", "cell1"]
        trajectory = play("OwnToolCorridor", "!where {}", "bye")
        assert trajectory.turns[0].outcomes[0].content == "in cell 0"
        trajectory = play("ToolCorridor", '!walk {"direction": "explode"}')
        assert trajectory.status is ChainStatus.ENVIRONMENT_ERROR
    finally:
        asyncio.run(manager.close())
