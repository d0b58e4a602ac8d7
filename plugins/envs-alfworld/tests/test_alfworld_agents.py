"""Games won through the agent path: scripted turns, real workers, real engine, by tools and by raw text."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from agentfly_envs_alfworld.actions import as_call
from agentfly_envs_alfworld.environment import ALFWorld
from agentfly_envs_alfworld.games import read_game
from agentfly_envs_alfworld.generation import generated_game
from agentfly_envs_alfworld.tasks import alfworld_tasks, generated_tasks

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.backends.scripted import ScriptedBackend
from agentfly_core.resources import InProcessCoordinator, ResourceManager, WorkerProvider
from agentfly_core.rewards.process import environment_return
from agentfly_core.rollout import Engine
from agentfly_core.testing import CharacterTemplate, CharacterTokenizer, call
from agentfly_core.types import ChainStatus, Generation, GenerationRequest, ResourceSpec, Task, Trajectory

TARGET = "agentfly_envs_alfworld.environment:ALFWorld"


class Together(ScriptedBackend):
    """Lets no chain act before ``crowd`` chains have an open game."""

    def __init__(self, turns: Mapping[Any, Sequence[str]], crowd: int = 1) -> None:
        super().__init__(turns, CharacterTokenizer())
        self._crowd, self._seen = crowd, set()
        self._all_here: asyncio.Event | None = None

    async def generate(self, request: GenerationRequest) -> Generation:
        self._all_here = self._all_here or asyncio.Event()
        self._seen.add(request.chain_key)
        if len(self._seen) >= self._crowd:
            self._all_here.set()
        await self._all_here.wait()
        return await super().generate(request)


@contextmanager
def workers() -> Iterator[ResourceManager]:
    manager = ResourceManager(InProcessCoordinator(), {"worker": WorkerProvider()})
    try:
        yield manager
    finally:
        asyncio.run(manager.close())


def winning(task: Task) -> tuple[str, ...]:
    name = task.fields["game"]
    return (generated_game(name) if name.startswith("generated:") else read_game(Path(name))).walkthrough


def replay(
    tasks: Sequence[Task],
    form: str,
    resources: ResourceManager,
    *,
    crowd: int = 1,
    concurrency: int = 2,
    target: str = TARGET,
    scripts: Mapping[int, Sequence[str]] | None = None,
) -> list[Trajectory]:
    """Play each task's walkthrough (or the script given for its number), in the tasks' order."""
    turns: dict[Any, Sequence[str]] = {}
    for number, task in enumerate(tasks):
        commands = (scripts or {}).get(number, winning(task))
        if form == "tools":
            commands = [call(name, **arguments) for name, arguments in map(as_call, commands)]
        turns[task.id, number, number] = commands
    backend = Together(turns, crowd)
    with Engine(
        agent=ToolCallingAgent() if form == "tools" else TextActionAgent(),
        template=CharacterTemplate(),
        backend=backend,
        reward=environment_return,
        environment=ResourceSpec.make("worker", target),
        resources=resources,
        max_turns=60,
        max_concurrency=concurrency,
        chain_timeout=600.0,
        tool_timeout=120.0,
    ) as engine:
        futures = [engine.submit(task, number, task.id) for number, task in enumerate(tasks)]
        return [future.result(timeout=3000) for future in futures]


def check_won(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> None:
    lost = [t.task.id for t in trajectories if t.reward != 1.0 or t.status is not ChainStatus.COMPLETED]
    assert not lost
    for trajectory, task in zip(trajectories, tasks, strict=True):
        assert len(trajectory.turns) == len(winning(task))
        assert [turn.reward for turn in trajectory.turns[:-1]] == [0.0] * (len(trajectory.turns) - 1)
        assert all(turn.anchor for turn in trajectory.turns)
        assert "Your task is to: " in str(trajectory.messages[0]["content"])


@pytest.mark.timeout(900)
def test_walkthroughs_win_by_text_and_by_tools_32_chains_at_once(release):
    folder = release("valid_seen", 20)
    tasks = list(alfworld_tasks("eval", data=str(folder)))
    assert len(tasks) == 20
    with workers() as resources:
        crowd = [*tasks, *(Task(f"again-{t.id}", fields=t.fields) for t in tasks[:12])]
        check_won(replay(crowd, "text", resources, crowd=32, concurrency=32), crowd)
        check_won(replay(tasks, "tools", resources, concurrency=8), tasks)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["text", "tools"])
@pytest.mark.parametrize(("split", "count"), [("train", 100), ("valid_seen", 140)])
def test_the_full_sets_win(release, form, split, count):
    folder = release(split, count)
    tasks = list(alfworld_tasks("train", data=str(folder), subset=split))
    assert len(tasks) >= count
    with workers() as resources:
        check_won(replay(tasks[:count], form, resources), tasks[:count])


class Mortal(ALFWorld):
    """Its process is killed at the action ``die``."""

    async def step(self, action: str) -> Any:
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(action)


def test_a_worker_killed_in_mid_game_ends_only_its_chain():
    tasks = list(islice(generated_tasks("train", 5, ("look_at_obj_in_light",)), 3))
    with workers() as resources:
        killed = [*winning(tasks[1])[:1], "die"]
        target = f"{Path(__file__).resolve()}:Mortal"
        found = replay(tasks, "text", resources, crowd=3, concurrency=3, target=target, scripts={1: killed})
    assert [t.status for t in found] == [
        ChainStatus.COMPLETED,
        ChainStatus.ENVIRONMENT_ERROR,
        ChainStatus.COMPLETED,
    ]
    assert "SIGKILL" in str(found[1].error)
    assert not found[1].scored
    assert [found[0].reward, found[2].reward] == [1.0, 1.0]
