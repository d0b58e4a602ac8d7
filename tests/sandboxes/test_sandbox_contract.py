"""What every sandbox does alike, whatever it is made of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest

from agentfly_core.types import Completed, Isolation, LeaseLost, ResourceError, Sandbox, SandboxProcess

SLEEPER = ["/bin/sh", "-c", "sleep 600"]


def test_it_is_what_the_types_promise(bench):
    async def scenario(sandbox):
        process = await sandbox.open(["cat"])
        return isinstance(sandbox, Sandbox), isinstance(process, SandboxProcess), sandbox.report

    fits, process_fits, report = bench.run(scenario)
    assert fits
    assert process_fits
    assert report == bench.report
    assert report.level == bench.provider.isolation
    assert report.level == {"docker": Isolation.CONTAINER, "rlimits": Isolation.PROCESS}.get(
        bench.kind, Isolation.SANDBOX
    )
    assert report.mechanism == bench.kind


def test_a_command_gets_its_input_folder_and_environment_and_gives_output_errors_and_code(bench):
    async def scenario(sandbox):
        await sandbox.write_file("deep/er/x", b"")
        command = 'read line; pwd; echo "$line $GREETING $HOME"; echo bad >&2; exit 7'
        return sandbox.workspace, await sandbox.run(
            ["/bin/sh", "-c", command], stdin=b"hello\n", timeout=60, cwd="deep/er", env={"GREETING": "world"}
        )

    workspace, done = bench.run(scenario)
    assert done == Completed(7, f"{workspace}/deep/er\nhello world {workspace}\n".encode(), b"bad\n")


def test_codes_are_those_of_a_shell(bench):
    async def scenario(sandbox):
        await sandbox.write_file("text", b"no program")
        return [
            await sandbox.run(argv, timeout=60)
            for argv in (["no-such-program"], ["./text"], ["/bin/sh", "-c", "kill -9 $$"], ["true"])
        ]

    missing, not_executable, killed, fine = bench.run(scenario)
    assert (missing.exit_code, not_executable.exit_code) == (127, 126)
    assert b"no-such-program" in missing.stderr
    assert (killed.exit_code, fine.exit_code) == (-9, 0)


def test_out_of_time_it_is_killed_with_its_group_and_what_it_said_is_kept(bench):
    async def scenario(sandbox):
        # The child waits with the shell for a pipe that the group holds open: only killing both ends the command.
        done = await sandbox.run(["/bin/sh", "-c", "echo begun; sleep 600 | cat"], timeout=3)
        left = await sandbox.run(["/bin/sh", "-c", "ps 2>/dev/null | grep -c '[s]leep 600'"], timeout=60)
        return done, left, await sandbox.run(["echo", "still here"], timeout=60)

    done, left, after = bench.run(scenario)
    assert done == Completed(None, b"begun\n", b"", timed_out=True)
    if bench.kind == "docker":  # the only one with a ps of its own to be seen in
        assert left.stdout == b"0\n"
    assert after.stdout == b"still here\n"


def test_a_cancelled_run_is_killed(bench, python):
    async def scenario(sandbox):
        work = asyncio.ensure_future(sandbox.run(["/bin/sh", "-c", "echo $$ > pid; exec sleep 600"], timeout=600))
        await _written(sandbox, "pid")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        pid = int(await sandbox.read_file("pid", max_bytes=20))
        alive = "import os, sys, json\ntry: os.kill(int(sys.argv[1]), 0); print(1)\nexcept OSError: print(0)"
        for _ in range(500):
            if not await python(sandbox, alive, str(pid)):
                return True
        return False

    assert bench.run(scenario)


def test_more_output_than_wanted_is_cut_and_drained(bench):
    async def scenario(sandbox):
        code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 10)"
        return await sandbox.run([sandbox.python, "-c", code], timeout=60, max_output=1000)

    done = bench.run(scenario)
    assert done == Completed(0, b"x" * 1000, b"y" * 10, truncated=True)


def test_large_input_goes_through_and_one_that_is_not_read_does_no_harm(bench):
    data = os.urandom(3_000_000)

    async def scenario(sandbox):
        through = await sandbox.run(["cat"], stdin=data, timeout=60, max_output=4_000_000)
        unread = await sandbox.run(["true"], stdin=data, timeout=60)
        return through.stdout == data, unread.exit_code

    assert bench.run(scenario) == (True, 0)


def test_a_process_is_talked_to_and_its_output_waits_for_its_reader(bench):
    async def scenario(sandbox):
        process = await sandbox.open(
            [sandbox.python, "-u", "-c", "import sys\nfor line in sys.stdin: print(line.strip().upper())"]
        )
        answers = []
        for word in (b"one\n", b"two\n"):
            await process.write(word)
            answers.append(await _line(process))
        await process.close_input()
        end, code = await process.read(), await process.wait()
        # Far more than may be under way: the writer is held back until it is read.
        flood = await sandbox.open([sandbox.python, "-c", "import sys; sys.stdout.write('x' * 2_000_000)"])
        size = 0
        while data := await flood.read(100_000):
            assert len(data) <= 100_000
            size += len(data)
        return answers, end, code, size, await flood.wait()

    assert bench.run(scenario) == ([b"ONE\n", b"TWO\n"], b"", 0, 2_000_000, 0)


def test_a_process_is_killed_and_then_takes_no_input(bench):
    async def scenario(sandbox):
        process = await sandbox.open(SLEEPER)
        await process.kill()
        code = await process.wait()
        assert await process.read() == b""
        await process.kill()
        with pytest.raises(BrokenPipeError):
            await process.write(b"x" * 1_000_000)
        return code

    assert bench.run(scenario) == -9


def test_errors_of_a_process_are_discarded_unless_asked_for(bench):
    async def scenario(sandbox):
        command = ["/bin/sh", "-c", "echo out; echo err >&2"]
        found = []
        for stderr in ("discard", "stdout"):
            process = await sandbox.open(command, stderr=stderr)
            data = b""
            while more := await process.read():
                data += more
            found.append(data)
        return found

    assert bench.run(scenario) == [b"out\n", b"out\nerr\n"]


def test_files_are_written_read_and_listed(bench):
    data = bytes(range(256)) * 2000

    async def scenario(sandbox):
        await sandbox.write_file("a/b.bin", data)
        await sandbox.write_file("a/b.bin", data[:-1])
        await sandbox.write_file("top.txt", b"")
        await sandbox.run(["ln", "-s", "a", "link"], timeout=60)
        await sandbox.run(["mkfifo", "pipe"], timeout=60)
        whole = await sandbox.read_file("a/b.bin", max_bytes=10**6)
        part = await sandbox.read_file(f"{sandbox.workspace}/link/b.bin", max_bytes=300)
        return whole, part, await sandbox.list_files(), await sandbox.list_files(recursive=True, max_entries=2)

    whole, part, entries, few = bench.run(scenario)
    assert whole == data[:-1]
    assert part == data[:300]
    assert [(e.path, e.kind) for e in entries] == [
        ("a", "directory"),
        ("link", "link"),
        ("pipe", "other"),
        ("top.txt", "file"),
    ]
    assert len(few) == 2


def test_file_errors_are_those_of_the_system(bench):
    async def scenario(sandbox):
        await sandbox.run(["mkfifo", "pipe"], timeout=60)
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("missing", max_bytes=10)
        with pytest.raises(NotADirectoryError):
            await sandbox.write_file("pipe/below", b"")
        with pytest.raises(OSError, match="no regular file"):
            await sandbox.read_file("pipe", max_bytes=10)
        with pytest.raises(OSError, match="no regular file"):
            await sandbox.read_file(".", max_bytes=10)
        with pytest.raises(FileNotFoundError):
            await sandbox.list_files("missing")
        with pytest.raises(ValueError, match="null"):
            await sandbox.read_file("a\0b", max_bytes=10)

    bench.run(scenario)


def test_reset_ends_processes_and_wipes_files(bench):
    async def scenario(sandbox):
        process = await sandbox.open(SLEEPER)
        await sandbox.write_file("x/y", b"secret")
        hide = "mkdir -p d/e; touch d/e/f; chmod 0 d/e d; echo s > $TMPDIR/t; ln -s / root; touch .hidden"
        assert (await sandbox.run(["/bin/sh", "-c", hide], timeout=60)).exit_code == 0
        assert await bench.provider.reset(sandbox)
        code = await process.wait()
        left = await sandbox.run(["/bin/sh", "-c", "ls -A . $TMPDIR | grep -v : | grep ."], timeout=60)
        return code, left.stdout, await bench.provider.health(sandbox)

    assert bench.run(scenario) == (-9, b"", True)


def test_the_set_up_command_runs_at_the_start_and_after_a_reset(bench):
    async def scenario(sandbox):
        first = await sandbox.read_file("made", max_bytes=100)
        assert await bench.provider.reset(sandbox)
        return first, await sandbox.read_file("made", max_bytes=100)

    spec = {"setup": "echo $KEY > made", "environment": (("KEY", "value"),)}
    assert bench.run(scenario, **spec) == (b"value\n", b"value\n")


def test_a_set_up_command_that_fails_says_so_and_leaves_nothing(bench):
    run_id = f"failing-{os.getpid()}"

    async def main():
        with pytest.raises(ResourceError, match=r"exited with code 3: sorry"):
            await bench.start(run_id=run_id, setup="echo sorry; exit 3")
        assert run_id not in await bench.provider.runs()

    asyncio.run(main())


def test_what_waits_is_told_when_the_sandbox_is_stopped(bench):
    async def main():
        async with bench.sandbox() as sandbox:
            process = await sandbox.open(SLEEPER)
            waiting = asyncio.ensure_future(process.read())
            running = asyncio.ensure_future(sandbox.run(SLEEPER, timeout=600))
            await asyncio.sleep(0)
            await bench.provider.stop(sandbox)
            for work in (waiting, running):
                with pytest.raises(ResourceError, match="stopped"):
                    await work
            assert not await bench.provider.health(sandbox)
            assert not await bench.provider.reset(sandbox)
            with pytest.raises(ResourceError, match="stopped"):
                await sandbox.run(["true"], timeout=1)

    asyncio.run(main())


def test_past_its_lease_it_takes_no_calls(bench):
    async def scenario(sandbox):
        sandbox.valid_until = time.monotonic() - 1
        for call in (
            sandbox.run(["true"], timeout=1),
            sandbox.open(["true"]),
            sandbox.read_file("x", max_bytes=1),
            sandbox.write_file("x", b""),
            sandbox.list_files(),
        ):
            with pytest.raises(LeaseLost, match="run out"):
                await call

    bench.run(scenario)


def test_it_serves_one_event_loop_after_another(bench):
    sandbox = asyncio.run(bench.start())
    try:
        for word in ("one", "two"):
            assert asyncio.run(sandbox.run(["echo", word], timeout=60)).stdout == f"{word}\n".encode()
    finally:
        asyncio.run(bench.provider.stop(sandbox))
        asyncio.run(bench.provider.stop(sandbox))


def test_a_cancelled_start_leaves_nothing(bench):
    run_id = f"cancelled-{os.getpid()}"

    async def main():
        for seconds in (0, 0.05, 0.2):
            starting = asyncio.ensure_future(bench.start(run_id=run_id))
            await asyncio.sleep(seconds)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await bench.provider.stop(await starting)  # it was faster
        assert run_id not in await bench.provider.runs()

    asyncio.run(main())


async def _line(process):
    line = b""
    while not line.endswith(b"\n"):
        line += await process.read(1)
    return line


async def _written(sandbox, path):
    """Wait until a command has written a line to a file."""
    for _ in range(3000):
        with contextlib.suppress(FileNotFoundError):
            if await sandbox.read_file(path, max_bytes=100):
                return
    raise AssertionError(f"{path} was not written")
