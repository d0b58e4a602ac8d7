"""What holds for an object in this process and for one in a worker alike, then what is particular to each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from agentfly_core.resources import ObjectProvider, RemoteTraceback, WorkerProvider
from agentfly_core.resources.host import load_target
from agentfly_core.types import Isolation, ResourceError, ResourceProvider, ResourceSpec

TARGETS = str(Path(__file__).with_name("targets.py"))
RUN = f"test-{os.getpid()}"
PROVIDERS = {"object": ObjectProvider, "worker": WorkerProvider}
kinds = pytest.mark.parametrize("kind", ["object", "worker"])


def spec_of(kind: str, name: str = "Thing", **options) -> ResourceSpec:
    return ResourceSpec.make(kind, f"{TARGETS}:{name}", options=options)


@contextlib.asynccontextmanager
async def started(spec: ResourceSpec, **arguments):
    provider = PROVIDERS[spec.kind](**arguments)
    handle = await provider.start(spec, run_id=RUN)
    try:
        yield provider, handle
    finally:
        await provider.stop(handle)


def gone(pid: int) -> bool:
    """Whether the process ends within ten seconds (a zombie has ended)."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@kinds
def test_sync_and_async_methods(kind):
    async def main():
        async with started(spec_of(kind, start=5)) as (provider, handle):
            assert isinstance(provider, ResourceProvider)
            assert await handle.call("add") == 6
            assert await handle.call("add", amount=4) == 10
            assert await handle.call("add_later", 1) == 11
            assert {"add", "add_later", "reset"} <= handle.members
            assert not any(name.startswith("_") for name in handle.members)
            assert await provider.health(handle)

    asyncio.run(main())


@kinds
def test_errors_keep_their_type(kind):
    async def main():
        async with started(spec_of(kind)) as (_, handle):
            with pytest.raises(ValueError, match="not a good value") as caught:
                await handle.call("fail_value")
            if kind == "worker":
                assert isinstance(caught.value.__cause__, RemoteTraceback)
                assert "in fail_value" in str(caught.value.__cause__)
            with pytest.raises(AttributeError, match="no method 'fly'"):
                await handle.call("fly")
            with pytest.raises(AttributeError, match="_private"):
                await handle.call("_private")
            with pytest.raises(TimeoutError, match="its own"):
                await handle.call("out_of_time", timeout=20)
            assert await handle.call("add") == 1  # none of these broke it

    asyncio.run(main())


@kinds
def test_a_call_out_of_time_breaks_the_object_and_those_queued_behind_it(kind):
    async def main():
        async with started(spec_of(kind)) as (provider, handle):
            hung = asyncio.create_task(handle.call("hang", 30, timeout=0.2))
            await asyncio.sleep(0.05)
            queued = asyncio.create_task(handle.call("add"))
            with pytest.raises(TimeoutError, match=r"did not answer 'hang' within 0.2 s"):
                await hung
            with pytest.raises(ResourceError, match="'hang' ran longer"):
                await asyncio.wait_for(queued, 10)
            with pytest.raises(ResourceError, match="'hang' ran longer"):
                await handle.call("add")
            assert not await provider.health(handle)
            assert not await provider.reset(handle)

    asyncio.run(main())


@kinds
def test_a_cancelled_call_breaks_the_object(kind):
    async def main():
        async with started(spec_of(kind)) as (provider, handle):
            call = asyncio.create_task(handle.call("add_later", 1, delay=30))
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not await provider.health(handle)
            with pytest.raises(ResourceError, match="cancelled"):
                await handle.call("add")

    asyncio.run(main())


@kinds
def test_the_loop_runs_on_while_a_method_blocks(kind, tmp_path):
    async def main():
        async with started(spec_of(kind)) as (_, handle):
            call = asyncio.create_task(handle.call("block_until", str(tmp_path / "go")))
            for _ in range(5):
                await asyncio.sleep(0.01)
            assert not call.done()
            (tmp_path / "go").touch()
            await call

    asyncio.run(main())


@kinds
@pytest.mark.parametrize(("name", "kept"), [("Thing", True), ("World", True), ("Stubborn", False), ("Plain", False)])
def test_reset_follows_the_object(kind, name, kept):
    async def main():
        async with started(spec_of(kind, name)) as (provider, handle):
            if name == "Thing":
                await handle.call("add", 3)
            assert await provider.reset(handle) is kept
            if name == "Thing":
                assert await handle.call("add", 0) == 0

    asyncio.run(main())


@kinds
def test_stop_closes_the_object_once(kind, tmp_path):
    log = tmp_path / "log"

    async def main():
        async with started(spec_of(kind, start=3, log=str(log))) as (provider, handle):
            await provider.stop(handle)
            with pytest.raises(ResourceError, match="stopped"):
                await handle.call("add")

    asyncio.run(main())
    assert log.read_text() == "closed 3\n"


@kinds
@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("no_such_module:Thing", "cannot be imported"),
        ("missing.py:Thing", "cannot be imported"),
        (f"{TARGETS}:Nothing", "cannot be imported"),
        (f"{TARGETS}:not_callable", "is no factory but 3"),
        ("__main__:Thing", "cannot import the main script"),
        ("Thing", "module:attribute"),
    ],
)
def test_a_target_that_leads_nowhere(kind, target, error):
    with pytest.raises(ResourceError, match=error):
        asyncio.run(PROVIDERS[kind]().start(ResourceSpec.make(kind, target), run_id="x"))


@kinds
def test_what_cannot_be_honoured_is_refused(kind):
    spec = ResourceSpec.make(kind, f"{TARGETS}:Thing", memory=64, cpu=1.0)
    with pytest.raises(ResourceError, match="cannot honour cpu, memory"):
        asyncio.run(PROVIDERS[kind]().start(spec, run_id="x"))


def test_sync_methods_of_an_object_run_on_one_thread_and_async_ones_on_the_callers_loop():
    async def main():
        async with started(spec_of("object")) as (provider, handle):
            here = threading.get_ident()
            first, second = await handle.call("whereabouts"), await handle.call("whereabouts")
            assert first == second != (os.getpid(), here)
            assert provider.isolation is Isolation.NONE
            assert (await asyncio.gather(*(handle.call("add_later", 1, 0.05) for _ in range(3))))[-1] == 3

    asyncio.run(main())


def test_a_worker_is_another_process_with_nothing_heavy_in_it():
    async def main():
        async with started(spec_of("worker")) as (provider, handle):
            assert provider.isolation is Isolation.PROCESS
            assert (await handle.call("whereabouts"))[0] == handle.pid != os.getpid()
            modules = set(await handle.call("modules"))
            assert not modules & {"torch", "numpy", "transformers", "pydantic", "multiprocessing"}

    asyncio.run(main())


def test_what_an_object_prints_or_reads_leaves_the_protocol_alone():
    async def main():
        async with started(spec_of("worker", loud="x" * 100)) as (_, handle):
            assert await handle.call("read_stdin") == ""
            assert await handle.call("add") == 1
            big = os.urandom(3_000_000)
            assert await handle.call("echo", big) == big

    asyncio.run(main())


def test_errors_and_values_that_cannot_travel():
    async def main():
        async with started(spec_of("worker")) as (_, handle):
            with pytest.raises(ResourceError, match=r"unpicklable failed: its result, of type generator"):
                await handle.call("unpicklable")
            with pytest.raises(ResourceError, match="arguments of 'echo' cannot be sent"):
                await handle.call("echo", lambda: 0)
            with pytest.raises(ResourceError, match="fail_awkward failed: Awkward: awkward"):
                await handle.call("fail_awkward")
            with pytest.raises(ResourceError, match="leave failed: SystemExit: 4"):
                await handle.call("leave")
            with pytest.raises(ResourceError, match="fail_foreign: its reply cannot be read here: No module named"):
                await handle.call("fail_foreign")
            with pytest.raises(load_target(f"{TARGETS}:Custom"), match="code 3") as caught:
                await handle.call("fail_custom")
            assert caught.value.code == 3
            assert await handle.call("add") == 1

    asyncio.run(main())


def test_a_failing_start_says_why_and_leaves_no_process():
    async def main():
        with pytest.raises(ValueError, match="no such world"):
            await WorkerProvider().start(spec_of("worker", fail=True), run_id="failing-start")
        with pytest.raises(TimeoutError):
            await WorkerProvider(start_timeout=0.5).start(spec_of("worker", slow_start=60), run_id="failing-start")
        start = asyncio.create_task(WorkerProvider().start(spec_of("worker", slow_start=60), run_id="failing-start"))
        await asyncio.sleep(0.4)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        for _ in range(100):
            if not processes_of("failing-start"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("a process was left behind")

    asyncio.run(main())


def test_a_dead_worker_fails_its_own_calls_only():
    async def main():
        async with started(spec_of("worker")) as (provider, dying), started(spec_of("worker")) as (_, other):
            with pytest.raises(ResourceError, match=r"(?s)exited with code 7.*about to die"):
                await dying.call("die")
            assert not await provider.health(dying)
            assert await other.call("add") == 1
            os.kill(other.pid, signal.SIGKILL)
            with pytest.raises(ResourceError, match="killed by SIGKILL"):
                await asyncio.wait_for(other.call("hang"), 10)

    asyncio.run(main())


def test_health_notices_a_worker_that_died_while_idle():
    async def main():
        async with started(spec_of("worker")) as (provider, handle):
            os.kill(handle.pid, signal.SIGKILL)
            for _ in range(100):
                if not await provider.health(handle):
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("still thought healthy")

    asyncio.run(main())


def test_stopping_a_worker_ends_what_it_started():
    async def main():
        async with started(spec_of("worker")) as (_, handle):
            return handle.pid, await handle.call("spawn_child")

    assert all(gone(pid) for pid in asyncio.run(main()))


def test_a_worker_sees_the_environment_of_its_spec():
    async def main():
        spec = ResourceSpec.make("worker", f"{TARGETS}:Thing", environment=(("GREETING", "hello"),))
        async with started(spec) as (_, handle):
            assert await handle.call("variable", "GREETING") == "hello"

    asyncio.run(main())


def shown(pid: int, marker: str) -> None:
    """Wait for the kernel to show a new process's environment: a moment after the program began."""
    while marker not in Path(f"/proc/{pid}/environ").read_text():
        time.sleep(0.01)


def test_a_sweep_kills_what_belongs_to_the_run_and_nothing_of_its_own():
    async def main():
        async with started(spec_of("worker")) as (provider, mine):
            crashed = f"crashed-{os.getpid()}"
            env = {**os.environ, "AGENTFLY_WORKER_RUN": crashed}
            stuck = await asyncio.to_thread(subprocess.Popen, ["sleep", "100"], env=env, start_new_session=True)
            try:
                await asyncio.to_thread(shown, stuck.pid, crashed)
                assert await provider.sweep(RUN) == 0
                assert await provider.sweep(crashed) == 1
                assert stuck.wait(10) == -signal.SIGKILL
                assert await mine.call("add") == 1
            finally:
                stuck.kill()

    asyncio.run(main())


def test_workers_end_with_a_killed_parent_and_never_rerun_its_script(tmp_path):
    script = tmp_path / "script.py"  # no __main__ guard; a module of a standard name lies beside it
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')\n")
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.remove({str(tmp_path)!r})
            import asyncio, json, time
            from agentfly_core.resources import WorkerProvider
            from agentfly_core.types import ResourceSpec

            async def main():
                provider = WorkerProvider()
                spec = ResourceSpec.make("worker", {TARGETS + ":Thing"!r})
                handles = [await provider.start(spec, run_id="script") for _ in range(2)]
                child = await handles[0].call("spawn_child")
                busy = asyncio.ensure_future(handles[1].call("hang", 100))
                await asyncio.sleep(0.1)
                print(json.dumps([handles[0].pid, handles[1].pid, child]), flush=True)
                await busy

            asyncio.run(main())
            """
        )
    )
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, cwd=tmp_path, env=env, text=True)
    try:
        pids = json.loads(parent.stdout.readline())
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert all(gone(pid) for pid in pids)


def processes_of(run_id: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"AGENTFLY_WORKER_RUN={run_id}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
