"""Gold paths through the agent path: scripted turns, real workers, real simulators; and no Java left after any end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agentfly_envs_scienceworld.actions import as_call
from agentfly_envs_scienceworld.catalogue import TASKS
from agentfly_envs_scienceworld.environment import ScienceWorld

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.backends.scripted import ScriptedBackend
from agentfly_core.resources import InProcessCoordinator, ResourceManager, WorkerProvider
from agentfly_core.rewards.process import environment_return
from agentfly_core.rollout import Engine
from agentfly_core.testing import CharacterTemplate, CharacterTokenizer, call
from agentfly_core.types import ChainStatus, ResourceSpec, Task, Trajectory

TARGET = "agentfly_envs_scienceworld.environment:ScienceWorld"
QUICK = ("find-non-living-thing", "lifespan-longest-lived", "lifespan-shortest-lived", "find-plant", "power-component")
HARD_TO_FIND = ("mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant")
"""Their gold paths take minutes to find."""

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]


def jvms_under(*roots: int) -> set[int]:
    """The Java processes among the living descendants of some processes. Needs /proc."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state != "Z":
            parents[int(folder.name)] = int(parent), name
    known = set(roots)
    while more := {pid for pid, (parent, _) in parents.items() if parent in known} - known:
        known |= more
    return {pid for pid in known if pid in parents and parents[pid][1] == "java"}


@contextmanager
def workers() -> Iterator[ResourceManager]:
    manager = ResourceManager(InProcessCoordinator(), {"worker": WorkerProvider()})
    try:
        yield manager
    finally:
        asyncio.run(manager.close())


def replay(paths: dict[str, list[str]], form: str, *, concurrency: int = 1, target: str = TARGET) -> list[Trajectory]:
    """Play a path for each task's first variation."""
    tasks = [Task(name, fields={"task": name, "variation": 0}) for name in paths]
    turns: dict[Any, Sequence[str]] = {}
    for number, task in enumerate(tasks):
        commands = paths[task.id]
        if form == "tools":
            commands = [call(name, **arguments) for name, arguments in map(as_call, commands)]
        turns[task.id, number, number] = commands
    with (
        workers() as resources,
        Engine(
            agent=ToolCallingAgent() if form == "tools" else TextActionAgent(),
            template=CharacterTemplate(),
            backend=ScriptedBackend(turns, CharacterTokenizer()),
            reward=environment_return,
            environment=ResourceSpec.make("worker", target, options={"max_steps": 1000}),
            resources=resources,
            max_turns=1000,
            max_concurrency=concurrency,
            chain_timeout=1500.0,
            tool_timeout=300.0,
        ) as engine,
    ):
        futures = [engine.submit(task, number, task.id) for number, task in enumerate(tasks)]
        return [future.result(timeout=3000) for future in futures]


def check_solved(trajectories: Sequence[Trajectory]) -> None:
    ends = {t.task.id: (t.status, t.reward, t.error) for t in trajectories}
    assert ends == dict.fromkeys(ends, (ChainStatus.COMPLETED, 1.0, None))
    for trajectory in trajectories:
        assert sum(turn.reward for turn in trajectory.turns) == 1.0
        assert any(turn.reward > 0 for turn in trajectory.turns[:-1])
        assert all(turn.anchor for turn in trajectory.turns)


@pytest.mark.parametrize(("form", "names"), [("text", QUICK), ("tools", QUICK[-2:])])
def test_gold_paths_score_100_through_the_agent_path(gold, form, names):
    check_solved(replay({name: gold(name, 0) for name in names}, form))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["text", "tools"])
def test_gold_paths_of_all_tasks_score_100(gold, form):
    paths = {name: gold(name, 0) for name in TASKS if name not in HARD_TO_FIND}
    assert len(paths) == 28
    check_solved(replay(paths, form))


def rss(pid: int) -> float:
    """MiB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


async def sizes_at_once(count: int, rounds: int) -> list[float]:
    """MiB of each worker with its simulator, after some episodes in all of them."""
    provider = WorkerProvider(start_timeout=600.0)
    spec = ResourceSpec.make("worker", TARGET)
    handles = await asyncio.gather(*(provider.start(spec, run_id="eight") for _ in range(count)))
    try:
        names = [name for name in TASKS if name not in HARD_TO_FIND]
        for turn in range(rounds):
            tasks = [Task("t", fields={"task": names[turn * count + n], "variation": turn}) for n in range(count)]
            await asyncio.gather(*(h.call("reset", t, 0) for h, t in zip(handles, tasks, strict=True)))
            for action in ("look around", "go to kitchen", "open cupboard", "wait", "inventory"):
                results = await asyncio.gather(*(h.call("step", action) for h in handles))
                assert all(result.observation for result in results)
        sizes = []
        for handle in handles:
            (java,) = jvms_under(handle.pid)
            sizes.append(rss(handle.pid) + rss(java))
        return sizes
    finally:
        await asyncio.gather(*(provider.stop(handle) for handle in handles))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("count", "rounds"), [(2, 2), pytest.param(8, 3, marks=pytest.mark.slow)], ids=["two", "eight"]
)
def test_environments_at_once_take_less_than_400_megabytes_each(count, rounds):
    before = jvms_under(os.getpid())
    sizes = asyncio.run(sizes_at_once(count, rounds))
    print([round(size) for size in sizes])
    assert len(sizes) == count
    assert max(sizes) < 400
    assert jvms_under(os.getpid()) == before


class Mortal(ScienceWorld):
    """Raises, hangs or is killed at a word."""

    async def step(self, action: str) -> Any:
        if action == "raise":
            raise RuntimeError("on request")
        if action == "hang":
            await asyncio.sleep(3600)
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(action)


HOLDER = """
import asyncio, os, sys, time
from agentfly_core.resources import WorkerProvider
from agentfly_core.types import ResourceSpec, Task

async def main():
    spec = ResourceSpec.make("worker", "agentfly_envs_scienceworld.environment:ScienceWorld")
    handle = await WorkerProvider(start_timeout=600.0).start(spec, run_id="holder")
    await handle.call("reset", Task("t", fields={"task": "find-plant", "variation": 0}), 0)
    if sys.argv[1] == "direct":
        from agentfly_envs_scienceworld.environment import ScienceWorld
        world = ScienceWorld()
        print(world._simulator.pid, flush=True)
    print(os.getpid(), handle.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def gone(pids: set[int], seconds: float = 120.0) -> bool:
    """Whether all of them end within some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
class TestNoJavaIsLeft:
    async def held(self, end: Callable[[WorkerProvider, Any], Any]) -> set[int]:
        """Start a world in a worker, end it in some way, and name the Java process that it had."""
        provider = WorkerProvider(start_timeout=600.0, timeout=120.0)
        spec = ResourceSpec.make("worker", f"{__file__}:Mortal")
        handle = await provider.start(spec, run_id="held")
        await handle.call("reset", Task("t", fields={"task": "find-plant", "variation": 0}), 0)
        javas = jvms_under(handle.pid)
        assert len(javas) == 1
        await end(provider, handle)
        return javas

    @pytest.mark.parametrize("how", ["normal", "exception", "cancel", "worker killed"])
    def test_after_the_end_of_a_worker(self, how):
        async def end(provider, handle):
            if how == "exception":
                with pytest.raises(RuntimeError, match="on request"):
                    await handle.call("step", "raise")
            elif how == "cancel":
                with pytest.raises(TimeoutError):
                    await handle.call("step", "hang", timeout=0.5)
            elif how == "worker killed":
                with pytest.raises(Exception, match="SIGKILL"):
                    await handle.call("step", "die")
            await provider.stop(handle)

        assert gone(asyncio.run(self.held(end)))

    def test_after_the_parent_was_killed(self):
        command = [sys.executable, "-c", HOLDER, "direct"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        try:
            own, (parent, worker) = int(holder.stdout.readline()), map(int, holder.stdout.readline().split())
            javas = jvms_under(parent)
            assert own in javas
            assert len(javas) == 2
        finally:
            holder.kill()
            holder.wait()
            holder.stdout.close()
        assert gone({*javas, worker})
