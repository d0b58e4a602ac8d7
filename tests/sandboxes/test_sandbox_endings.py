"""The end of a sandbox that does not answer: nothing of it is left, and nobody is told that it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider, running, state
from agentfly_core.types import ResourceError, ResourceSpec

LIMITS = {"memory": 256, "pids": 24, "cpu": 1.0, "disk": 16}
RUNAWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
time.sleep(600)
"""
"""A process that left its group, its session, its parents and what its environment said of it."""


@pytest.fixture(autouse=True)
def _marks(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTFLY_STATE_DIR", str(tmp_path))


def kind_of(bench) -> str:
    return "docker" if bench.kind == "docker" else "process"


class Frozen:
    """Leases of one provider that waits but a second for a reset, and the means to stop all that is in a sandbox."""

    def __init__(self, bench, engine) -> None:
        self.kind = kind_of(bench)
        self.run_id = f"frozen-{uuid.uuid4().hex}"
        self._engine = engine
        self.provider = (
            DockerProvider(image=engine.IMAGE, base_url=engine.HOST, reset_timeout=1.0, **LIMITS)
            if self.kind == "docker"
            else ProcessProvider(tier=bench.kind, reset_timeout=1.0, **LIMITS)
        )
        self.manager = ResourceManager(
            InProcessCoordinator({self.kind: 1}), {self.kind: self.provider}, run_id=self.run_id
        )

    async def freeze(self, sandbox) -> list[int]:
        """Stop every process of a sandbox; their ids."""
        await sandbox.open([sandbox.python, "-I", "-c", RUNAWAY])
        while len(found := self._processes(sandbox)) < 3:  # the supervisor, the command, what it left behind
            await asyncio.to_thread(time.sleep, 0.02)
        if self.kind == "docker":
            self._docker("pause", sandbox.id)
        else:
            for pid in found:
                os.kill(pid, signal.SIGSTOP)
        return found

    def left(self, sandbox, pids: list[int]) -> list[object]:
        """What there is of it still."""
        there: list[object] = [pid for pid in pids if alive(pid)]
        if self.kind == "docker":
            found = self._docker("ps", "-aq", "--filter", f"label=agentfly.run={self.run_id}").split()
            return [*there, *found]
        groups = sandbox.group.folders if sandbox.group else []
        return there + [path for path in (sandbox.folder, *groups) if path.exists()]

    def _processes(self, sandbox) -> list[int]:
        if self.kind == "docker":
            rows = self._docker("top", sandbox.id, "-eo", "pid").split()
            return [int(pid) for pid in rows if pid.isdigit()]
        found, front = set(), {sandbox.pid}
        while front:
            found |= front
            front = {pid for pid in numbers() if parent(pid) in front} - found
        return sorted(found)

    def _docker(self, *arguments: str) -> str:
        return subprocess.check_output(["docker", "-H", self._engine.HOST, *arguments], text=True, timeout=60)


def numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def parent(pid: int) -> int:
    return int(fields(pid)[1])


def alive(pid: int) -> bool:
    return fields(pid)[0] not in "ZX"


@pytest.fixture
def frozen(bench, request) -> Frozen:
    return Frozen(bench, request.getfixturevalue("engine") if bench.kind == "docker" else None)


@pytest.mark.parametrize("ending", ["reset", "cancelled", "lost", "closed"])
def test_a_frozen_supervisor_is_ended_with_all_that_it_holds(frozen, ending, monkeypatch, caplog):
    monkeypatch.setattr(running, "STOP_SECONDS", 0.5)
    spec = ResourceSpec(frozen.kind)

    async def hold(kept, entered, *, wait: bool) -> None:
        async with frozen.manager.lease(spec, owner="first") as lease:
            kept += [lease.resource, await frozen.freeze(lease.resource)]
            entered.set()
            if wait:
                await asyncio.sleep(600)

    async def main() -> None:
        kept: list = []
        entered = asyncio.Event()
        holder = asyncio.ensure_future(hold(kept, entered, wait=ending in ("lost", "closed")))
        await entered.wait()
        if ending == "cancelled":
            await asyncio.sleep(0.2)  # it waits for the reset
            holder.cancel()
        elif ending == "lost":
            await frozen.provider.stop(kept[0])
            holder.cancel()
        elif ending == "closed":
            await frozen.manager.close()
            holder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holder
        assert frozen.left(*kept) == []
        assert frozen.run_id not in await frozen.provider.runs()
        if ending != "closed":
            async with frozen.manager.lease(spec, owner="second") as lease:
                assert (await lease.resource.run(["echo", "fine"], timeout=60)).stdout == b"fine\n"
            await frozen.manager.close()

    asyncio.run(main())
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_sandbox_that_cannot_be_made_leaves_nothing(bench):
    """A refused spec is found out half-way, with a folder, a group and a user id in hand."""
    if bench.kind in ("bubblewrap", "docker"):
        pytest.skip("it can have mounts")
    run_id = f"refused-{uuid.uuid4().hex}"
    locks = Path("/run/agentfly-uids")

    async def main() -> None:
        with pytest.raises(ResourceError, match="mounts need bubblewrap"):
            await bench.start(run_id=run_id, mounts=(("/srv", "/srv", False),))
        assert run_id not in await bench.provider.runs()

    before = held(locks)
    asyncio.run(main())
    assert held(locks) == before


def held(folder: Path) -> list[str]:
    """Files of a folder that this process holds open."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(path))
    return sorted(name for name in found if name.startswith(str(folder)))


def test_a_folder_is_removed_whatever_was_made_of_it(tmp_path):
    folder = tmp_path / "sandbox"
    script = 'mkdir -p "$1/closed/in" && touch "$1/closed/in/file" && chmod 0 "$1/closed" "$1/closed/in"'
    subprocess.run(["/bin/sh", "-c", script, "sh", str(folder)], check=True)
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=deep)
        step = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = step
    os.close(deep)
    state.remove_folder(folder)
    assert not folder.exists()
    state.remove_folder(folder)


def test_what_could_not_be_swept_is_left_to_a_later_run(bench, tmp_path, monkeypatch):
    kind = kind_of(bench)
    run_id = f"unswept-{uuid.uuid4().hex}"

    async def refuse(_: str) -> int:
        raise ResourceError("the engine is away")

    async def main() -> None:
        manager = ResourceManager(InProcessCoordinator({kind: 1}), {kind: bench.provider}, run_id=run_id)
        async with manager.lease(ResourceSpec(kind), owner="x"):
            monkeypatch.setattr(bench.provider, "sweep", refuse)
        await manager.close()

    asyncio.run(main())
    assert [path.stem for path in tmp_path.rglob("*.run")] == [run_id]
