"""Sandboxes under the resource manager: shared fairly, never leaked, whatever ends their run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid

import pytest

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.types import Isolation, ResourceError, ResourceSpec

SMALL = {"memory": 64, "pids": 16, "cpu": 1.0, "disk": 4}


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A folder of its own for the marks of runs."""
    monkeypatch.setenv("AGENTFLY_STATE_DIR", str(tmp_path))
    return tmp_path


def manager_of(bench, capacity: int, run_id: str) -> ResourceManager:
    kind = kind_of(bench)
    return ResourceManager(InProcessCoordinator({kind: capacity}), {kind: bench.provider}, run_id=run_id)


def kind_of(bench) -> str:
    return "docker" if bench.kind == "docker" else "process"


def containers(engine, run_id: str) -> list[str]:
    """Ids of a run's containers, ended ones included, as the engine's own command line sees them."""
    command = ["docker", "-H", engine.HOST, "ps", "-aq", "--filter", f"label=agentfly.run={run_id}"]
    return subprocess.check_output(command, text=True, timeout=60).split()


def test_200_leases_through_20_containers_at_concurrency_50(docker_bench, engine, state):
    run_id = f"leases-{uuid.uuid4().hex}"
    held, most, used = set(), [0], set()

    async def lease(manager, number, gate):
        spec = ResourceSpec("docker", min_isolation=Isolation.CONTAINER, **SMALL)
        async with gate, manager.lease(spec, owner=f"chain {number}") as lease:
            sandbox = lease.resource
            assert sandbox.id not in held  # never shared
            held.add(sandbox.id)
            used.add(sandbox.id)
            most[0] = max(most[0], len(held))
            assert await sandbox.list_files() == []  # as new
            word = f"{number}-{uuid.uuid4().hex}"
            await sandbox.write_file("mine", word.encode())
            done = await sandbox.run(["cat", "mine"], timeout=120)
            assert done.stdout == word.encode(), done
            held.discard(sandbox.id)

    async def main():
        manager = manager_of(docker_bench, 20, run_id)
        gate = asyncio.Semaphore(50)
        try:
            await asyncio.gather(*(lease(manager, n, gate) for n in range(200)))
            assert len(containers(engine, run_id)) <= 20
        finally:
            await manager.close()

    asyncio.run(main())
    assert most[0] <= 20
    assert len(used) == 20  # kept warm and used ten times each
    assert containers(engine, run_id) == []


def test_nothing_is_left_after_exceptions_and_cancellation(bench, state):
    run_id = f"faults-{uuid.uuid4().hex}"
    spec = ResourceSpec(kind_of(bench), **SMALL)

    async def failing(manager):
        async with manager.lease(spec, owner="failing") as lease:
            await lease.resource.open(["sleep", "600"])
            raise RuntimeError("on purpose")

    async def hanging(manager, entered):
        async with manager.lease(spec, owner="hanging") as lease:
            entered.set()
            await lease.resource.run(["sleep", "600"], timeout=600)

    async def main():
        manager = manager_of(bench, 2, run_id)
        try:
            with pytest.raises(RuntimeError, match="on purpose"):
                await failing(manager)
            entered = asyncio.Event()
            works = [asyncio.ensure_future(hanging(manager, entered)) for _ in range(3)]  # one of them waits
            await entered.wait()
            for work in works:
                work.cancel()
            assert all(
                isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*works, return_exceptions=True)
            )
            async with manager.lease(spec, owner="after") as lease:
                assert (await lease.resource.run(["echo", "fine"], timeout=60)).stdout == b"fine\n"
        finally:
            await manager.close()
        assert run_id not in await bench.provider.runs()

    asyncio.run(main())


HOLDER = textwrap.dedent("""
    import asyncio, json, sys
    from agentfly_core.resources import InProcessCoordinator, ResourceManager
    from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
    from agentfly_core.types import ResourceSpec

    arguments = json.loads(sys.argv[1])
    kind, run_id, token, options = (arguments[k] for k in ("kind", "run", "token", "options"))
    provider = (DockerProvider if kind == "docker" else ProcessProvider)(**options)

    async def hold(manager, ready):
        async with manager.lease(ResourceSpec(kind), owner="holder") as lease:
            sandbox = lease.resource
            slip = "import os, sys, time\\nif os.fork() == 0:\\n os.setsid()\\n if os.fork() == 0: time.sleep(600)"
            await sandbox.open([sandbox.python, "-c", slip + "\\ntime.sleep(600)", token])
            while (await sandbox.run(["true"], timeout=60)).exit_code:
                pass
            ready.release()
            await asyncio.sleep(600)

    async def main():
        manager = ResourceManager(InProcessCoordinator(), {kind: provider}, run_id=run_id)
        ready = asyncio.Semaphore(0)
        holding = [asyncio.ensure_future(hold(manager, ready)) for _ in range(2)]
        for _ in holding:
            await ready.acquire()
        print("ready", flush=True)
        await asyncio.gather(*holding)

    asyncio.run(main())
""")


@contextlib.contextmanager
def holder(bench, run_id: str, token: str):
    """A process that holds two sandboxes, in which processes have slipped away from their parents."""
    import json

    options = dict(SMALL)
    if bench.kind == "docker":
        options.update(image=bench.provider._image, base_url=bench.provider._engine.url)
    else:
        options.update(tier=bench.kind)
    arguments = json.dumps({"kind": kind_of(bench), "run": run_id, "token": token, "options": options})
    process = subprocess.Popen([sys.executable, "-c", HOLDER, arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_killed(bench, state, sign):
    run_id, token = f"killed-{uuid.uuid4().hex}", f"agentfly-{uuid.uuid4().hex}"
    with holder(bench, run_id, token) as process:
        assert eventually(lambda: running(token) == 6)  # in each sandbox one, its child and its grandchild
        process.send_signal(sign)
        process.wait(60)
        assert eventually(lambda: running(token) == 0)
        if bench.kind == "docker":  # a container removes itself when nobody holds its stream
            assert eventually(lambda: run_id not in asyncio.run(bench.provider.runs()))
    asyncio.run(bench.provider.sweep(run_id))  # of processes a folder and a control group are left
    assert run_id not in asyncio.run(bench.provider.runs())


def test_the_next_run_sweeps_what_a_killed_one_left(bench, state):
    run_id, token = f"swept-{uuid.uuid4().hex}", f"agentfly-{uuid.uuid4().hex}"
    with holder(bench, run_id, token) as process:
        if bench.kind == "docker":  # paused, they cannot notice the end of their run
            paused = containers_of(bench, run_id)
            assert len(paused) == 2
            for container in paused:
                subprocess.run(["docker", "-H", bench.provider._engine.url, "pause", container], check=True, timeout=60)
        process.kill()
        process.wait(60)
        assert run_id in asyncio.run(bench.provider.runs())

        async def next_run():
            manager = manager_of(bench, 2, f"next-{uuid.uuid4().hex}")
            try:
                async with manager.lease(ResourceSpec(kind_of(bench), **SMALL), owner="next"):
                    deadline = time.monotonic() + 120
                    while run_id in await bench.provider.runs():
                        assert time.monotonic() < deadline
                        await asyncio.sleep(0.05)
            finally:
                await manager.close()

        asyncio.run(next_run())
        assert running(token) == 0


def test_a_sweep_spares_what_lives(bench):
    run_id = f"alive-{uuid.uuid4().hex}"

    async def main():
        sandbox = await bench.start(run_id=run_id)
        try:
            assert run_id in await bench.provider.runs()
            assert await bench.provider.sweep(run_id) == 0
            return (await sandbox.run(["echo", "alive"], timeout=60)).stdout
        finally:
            await bench.provider.stop(sandbox)

    assert asyncio.run(main()) == b"alive\n"


def test_a_minimum_isolation_fails_closed(bench, state):
    level = bench.provider.isolation

    async def main():
        manager = manager_of(bench, 1, f"isolation-{uuid.uuid4().hex}")
        try:
            for demanded in Isolation:
                leasing = manager.lease(ResourceSpec(kind_of(bench), min_isolation=demanded, **SMALL), owner="x")
                if demanded <= level:
                    async with leasing as lease:
                        assert lease.resource.report.level >= demanded
                else:
                    with pytest.raises(ResourceError, match=rf"{demanded.name}.*only {level.name}"):
                        await leasing.__aenter__()
        finally:
            await manager.close()

    asyncio.run(main())


def containers_of(bench, run_id: str) -> list[str]:
    command = ["docker", "-H", bench.provider._engine.url, "ps", "-aq", "--filter", f"label=agentfly.run={run_id}"]
    return subprocess.check_output(command, text=True, timeout=60).split()


def running(token: str) -> int:
    """Living processes of this machine with the token among their arguments, our own holder left out."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            found += token.encode() in file.read().split(b"\0")
    return found


def eventually(condition) -> bool:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
