"""A sandbox: a supervisor at the other end of a stream."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentfly_core.resources.sandboxes.bundle import opening
from agentfly_core.resources.sandboxes.io_thread import settled
from agentfly_core.resources.sandboxes.link import Link
from agentfly_core.resources.sandboxes.remote import RemoteProcess
from agentfly_core.types import Completed, FileEntry, IsolationReport, LeaseLost, ResourceError, ResourceSpec

FILE_SECONDS = 60.0
"""What a file operation may take."""
GRACE_SECONDS = 10.0
"""What the end of a killed command may take before the sandbox counts as broken."""
SETUP_SECONDS = 600.0
START_SECONDS = 120.0
DAEMON = 'exec "$@" > /dev/null 2>&1'


class SupervisedSandbox(ABC):
    """``types.Sandbox`` over a supervisor's stream, the same for every provider.

    Attributes:
        spec: what was asked for.
        report: what it keeps out and bounds.
        workspace, python: paths inside.
        name: unique among all sandboxes of this machine.
        link: the stream.
        valid_until: see ``types.Fenced``.
        stuck: whether its supervisor has failed to answer: it is not waited for at the end.
    """

    def __init__(
        self,
        spec: ResourceSpec,
        report: IsolationReport,
        name: str,
        config: Mapping[str, Any],
        *,
        python: str,
        link: Link,
    ) -> None:
        self.spec = spec
        self.report = report
        self.name = name
        self.workspace: str = config["workspace"]
        self.python = python
        self.link = link
        self.valid_until = math.inf
        self.stuck = False
        self._config = config
        self._opening: asyncio.Future[socket.socket] | None = None
        self._stopped: asyncio.Future[None] | None = None

    @property
    def broken(self) -> str:
        """Why it takes no more commands; empty while it works."""
        return self.link.lost

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        max_output: int = 1_000_000,
    ) -> Completed:
        """Run a command to its end; see ``types.Sandbox.run``."""
        self._refuse_if_over()
        return await self._complete(self._command(argv, cwd, env, "pipe"), stdin, timeout, max_output)

    async def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stderr: Literal["discard", "stdout"] = "discard",
    ) -> RemoteProcess:
        """Start a process and talk to it; see ``types.Sandbox.open``."""
        self._refuse_if_over()
        return self._command(argv, cwd, env, stderr)

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """The first ``max_bytes`` of a regular file; see ``types.Sandbox.read_file``."""
        return await self._call("read", path, {"path": path, "max_bytes": max_bytes}, max_output=max_bytes)

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, making its parents; see ``types.Sandbox.write_file``."""
        await self._call("write", path, {"path": path}, stdin=data)

    async def list_files(
        self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000
    ) -> list[FileEntry]:
        """Entries of a folder sorted by path; see ``types.Sandbox.list_files``."""
        arguments = {"path": path, "recursive": recursive, "max_entries": max_entries}
        lines = await self._call("list", path, arguments, max_output=max_entries * 10_000)
        return sorted((FileEntry(*json.loads(line)) for line in lines.splitlines()), key=lambda entry: entry.path)

    async def start(self) -> None:
        """On the I/O loop: start the supervisor, wait until it answers, and run the spec's set-up command.

        Raises:
            ResourceError: it does not answer, or the command fails; with what was said.
        """
        self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_stream))
        stream = await asyncio.shield(self._opening)
        stream.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self.link, sock=stream)
        self.link.write(opening(self._config))
        await asyncio.to_thread(self._begin)
        try:
            ready = await asyncio.wait_for(asyncio.wrap_future(self.link.ready), START_SECONDS)
        except (ResourceError, asyncio.TimeoutError) as error:
            reason = await asyncio.to_thread(self._obituary)
            raise ResourceError(f"the {self.report.mechanism} sandbox did not start: {reason}") from error
        self.python = self.python or str(ready["python"])
        await self._set_up()

    async def stop(self) -> None:
        """On the I/O loop: end every process of it and remove what belongs to it, even if cancelled; once."""
        if self._stopped is None:
            self._stopped = asyncio.ensure_future(self._stop())
        await settled(self._stopped)
        self._stopped.result()

    async def clear(self, *, timeout: float) -> bool:
        """End every command and wipe what was written; False: it must be replaced."""
        if self.broken:
            return False
        try:
            cleared = await asyncio.wait_for(asyncio.wrap_future(self.link.clear()), timeout)
        except (ResourceError, asyncio.TimeoutError):
            self.stuck = True
            return False
        if cleared:
            await self._set_up()
        return cleared

    @abstractmethod
    def _open_stream(self) -> socket.socket:
        """On a thread: make what the supervisor runs in; the stream to it."""

    @abstractmethod
    def _begin(self) -> None:
        """On a thread, once the stream is connected: let the supervisor run, if it does not yet."""

    @abstractmethod
    def _end(self) -> None:
        """On a thread, once the stream is closed: see to it that nothing is left."""

    @abstractmethod
    def _obituary(self) -> str:
        """On a thread: why the supervisor does not answer."""

    async def _stop(self) -> None:
        try:
            self.link.lose("it was stopped")
            if self._opening is not None:
                await asyncio.wait({self._opening})
                if not self._opening.cancelled() and self._opening.exception() is None:
                    self._opening.result().close()
        finally:
            await asyncio.to_thread(self._end)

    async def _set_up(self) -> None:
        if self.spec.command:
            self._command(["/bin/sh", "-c", DAEMON, "sh", *self.spec.command], None, None, "discard")
        if not self.spec.setup:
            return
        command = self._command(["/bin/sh", "-c", self.spec.setup], None, None, "pipe")
        done = await self._complete(command, b"", SETUP_SECONDS, 1_000_000)
        if done.exit_code != 0:
            how = "ran out of time" if done.timed_out else f"exited with code {done.exit_code}"
            said = (done.stdout + done.stderr)[-2000:].decode(errors="replace").strip()
            raise ResourceError(f"the set-up command {self.spec.setup!r} {how}: {said}")

    def _refuse_if_over(self) -> None:
        if time.monotonic() > self.valid_until:
            raise LeaseLost(f"the lease of the {self.report.mechanism} sandbox has run out: it takes no more calls")

    def _command(
        self, argv: Sequence[str], cwd: str | None, env: Mapping[str, str] | None, stderr: str
    ) -> RemoteProcess:
        if not argv:
            raise ValueError("argv is empty")
        request = {"argv": list(argv), "cwd": cwd, "env": dict(env or {}), "stderr": stderr}
        return self.link.start(request)

    async def _call(
        self, name: str, path: str, arguments: dict[str, Any], *, stdin: bytes = b"", max_output: int = 0
    ) -> bytes:
        """A file operation inside, by a child as confined as any command."""
        if "\0" in path:
            raise ValueError("a path must not hold a null character")
        self._refuse_if_over()
        request = {"call": name, "arguments": arguments, "cwd": None, "env": {}, "stderr": "pipe"}
        done = await self._complete(self.link.start(request), stdin, FILE_SECONDS, max(max_output, 65536))
        if done.timed_out:
            raise TimeoutError(f"{name} {path!r} took longer than {FILE_SECONDS} s")
        if done.exit_code != 0:
            raise _file_error(done, path)
        return done.stdout

    async def _complete(self, process: RemoteProcess, stdin: bytes, timeout: float, max_output: int) -> Completed:
        output, errors = _Kept(max_output), _Kept(max_output)
        work = asyncio.ensure_future(_converse(process, stdin, output, errors))
        try:
            done, _ = await asyncio.wait({work}, timeout=timeout)
            if not done:
                process.abandon(discard=False)
                await asyncio.wait({work}, timeout=GRACE_SECONDS)
                if not work.done():
                    raise ResourceError(f"a killed command did not end within {GRACE_SECONDS} s")
            code = await work
        except BaseException:
            process.abandon()
            work.cancel()
            raise
        truncated = output.truncated or errors.truncated
        return Completed(code if done else None, bytes(output.data), bytes(errors.data), not done, truncated)


class _Kept:
    """The first bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self._limit = limit

    def add(self, data: bytes) -> None:
        room = self._limit - len(self.data)
        self.truncated = self.truncated or len(data) > room
        self.data += data[:room]


async def _converse(process: RemoteProcess, stdin: bytes, output: _Kept, errors: _Kept) -> int:
    feeding = asyncio.ensure_future(_feed(process, stdin))
    try:
        while (data := await process.take()) is not None:
            output.add(data[0])
            errors.add(data[1])
        return await process.wait()
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})
        if not feeding.cancelled():
            feeding.exception()  # the sandbox is gone: said by whoever reads


async def _feed(process: RemoteProcess, stdin: bytes) -> None:
    try:
        await process.write(stdin)
    except BrokenPipeError:
        return  # it need not read its input
    await process.close_input()


def _file_error(done: Completed, path: str) -> OSError:
    try:
        number, text = json.loads(done.stderr)
        return OSError(int(number), str(text), path)
    except (ValueError, TypeError):
        said = done.stderr[-500:].decode(errors="replace").strip()
        return OSError(errno.EIO, said or f"ended with {done.exit_code}", path)
