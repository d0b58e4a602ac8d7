"""Objects in worker processes: a crash stays inside, a hung call can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from agentfly_core.resources.handle import Handle, RemoteTraceback, refuse_unsupported
from agentfly_core.resources.threads import SerialThread
from agentfly_core.resources.wire import read_frame, write_frame
from agentfly_core.types import Isolation, ResourceError, ResourceSpec, ToolContext

BOOTSTRAP = (
    "import sys, os; sys.path[:] = sys.argv.pop(1).split(os.pathsep); "
    "from agentfly_core.resources.worker_main import main; main()"
)
"""Takes the parent's import path before anything is imported: ``-m`` would let the working directory shadow modules."""
RUN_VARIABLE = "AGENTFLY_WORKER_RUN"
"""In the environment of every worker and of what it starts: the id of the run that it belongs to."""


class WorkerHandle(Handle):
    """An object in a process of its own. Bound to no event loop: one thread talks to the process."""

    def __init__(self, spec: ResourceSpec, run_id: str) -> None:
        super().__init__(spec)
        self._run_id = run_id
        self._thread = SerialThread(f"agentfly-worker-{spec.target}")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr = b""
        self._drain: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, None before it runs."""
        return self._process.pid if self._process else None

    async def start(self, *, timeout: float) -> None:
        """Start the process and make the object in it."""
        arguments = self.spec.arguments()
        self.members = await self._request("start", "start", self.spec.target, arguments, timeout=timeout)

    async def stop(self, *, timeout: float) -> None:
        """Let the object close itself, then end the process and everything that it started."""
        try:
            if not self.broken:
                await self._request("close", "close", timeout=timeout)
        finally:
            self.fail("it was stopped")
            if self._process is not None:
                await asyncio.to_thread(self._process.wait)

    def alive(self) -> bool:
        """Whether it can take a call."""
        process = self._process
        if not self.broken and process is not None and process.poll() is not None:
            self.fail(self._obituary())
        return not self.broken

    def fail(self, reason: str) -> None:
        """Kill the process with everything in its group; what waits for it fails."""
        with self._lock:
            if self.broken:
                return
            self.broken = reason
            process = self._process
        self._thread.close(self.gone())
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            threading.Thread(target=_reap, args=(process,), daemon=True).start()

    async def _perform(self, operation: str, payload: tuple[Any, ...]) -> Any:
        return await asyncio.wrap_future(self._thread.submit(lambda: self._exchange(operation, payload)))

    def _exchange(self, operation: str, payload: tuple[Any, ...]) -> Any:
        """One request and its reply; runs on the thread."""
        label = payload[0] if operation in ("call", "call_tool") else operation
        try:
            frame = pickle.dumps((operation, tuple(map(_portable, payload))))
        except Exception as error:
            raise ResourceError(f"the arguments of {label!r} cannot be sent to a worker: {error}") from error
        try:
            process = self._launch()
            assert process.stdin is not None
            assert process.stdout is not None
            write_frame(process.stdin, frame)
            reply = read_frame(process.stdout)
        except (EOFError, OSError, ValueError) as error:  # ValueError: its pipes were closed meanwhile
            self.fail(self._obituary())
            raise self.gone() from error
        return _open(reply, f"{self.spec.target} {label}")

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self.broken:
                raise self.gone()
            if self._process is None:
                paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
                self._process = subprocess.Popen(
                    [sys.executable, "-c", BOOTSTRAP, paths],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, RUN_VARIABLE: self._run_id, **dict(self.spec.environment)},
                    start_new_session=True,
                )
                self._drain = threading.Thread(target=self._keep_stderr, args=(self._process.stderr,), daemon=True)
                self._drain.start()
            return self._process

    def _keep_stderr(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                self._stderr = (self._stderr + chunk)[-4000:]

    def _obituary(self) -> str:
        if self._process is None or self._drain is None:
            return "its process could not be started"
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe"
        self._drain.join(timeout=0.5)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        said = self._stderr.decode(errors="replace").strip()
        return f"its process {how}{'; it last said: ' + said[-1000:] if said else ''}"


class WorkerProvider:
    """Makes objects from ``module:factory`` targets, each in a spawned process that imports only what it needs.

    A crash stays inside; files and network are open to it, and it is trusted: its replies are pickles.

    Args:
        start_timeout: seconds that a process may take to start and make its object.
        timeout: seconds that an object may take to reset or close itself.
    """

    isolation = Isolation.PROCESS

    def __init__(self, *, start_timeout: float = 120.0, timeout: float = 10.0) -> None:
        self._start_timeout = start_timeout
        self._timeout = timeout
        self._pids: set[int] = set()

    async def start(self, spec: ResourceSpec, *, run_id: str) -> WorkerHandle:
        """A new process with its object. Cancelling the call kills it.

        Raises:
            ResourceError: the target cannot be imported, or the process died.
            TimeoutError: it took too long.
        """
        refuse_unsupported(spec, "environment")
        handle = WorkerHandle(spec, run_id)
        try:
            await handle.start(timeout=self._start_timeout)
        except BaseException:
            handle.fail("it could not be started")
            raise
        assert handle.pid is not None
        self._pids.add(handle.pid)
        return handle

    async def health(self, instance: WorkerHandle) -> bool:
        """Whether its process lives and no call was abandoned half-way."""
        return instance.alive()

    async def reset(self, instance: WorkerHandle) -> bool:
        """Make it as new (see ``Host.recycle``); False says that it must be replaced."""
        return instance.alive() and await instance.recycle(timeout=self._timeout)

    async def stop(self, instance: WorkerHandle) -> None:
        """Close the object, end the process and everything it started."""
        try:
            await instance.stop(timeout=self._timeout)
        finally:
            self._pids.discard(instance.pid or 0)

    async def runs(self) -> frozenset[str]:
        """Those whose workers, or what these started, run on this machine. Needs /proc, without it there are none."""
        return frozenset(await asyncio.to_thread(lambda: {run for run, _, _ in _processes()}))

    async def sweep(self, run_id: str) -> int:
        """Kill processes that a crashed run left behind; how many there were. Needs /proc, without it does nothing.

        Workers end by themselves when their parent does; this finds those that are stuck, and what they started.
        """
        found = await asyncio.to_thread(lambda: list(_processes()))
        leftovers = [p for run, p, group in found if run == run_id and group not in self._pids and p != os.getpid()]
        for pid in leftovers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(leftovers)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Collect a killed process; on a thread, for nobody can say how long the kernel takes."""
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            assert stream is not None
            stream.close()


def _portable(value: Any) -> Any:
    """What of a request's payload can travel: a context leaves its environment and resources behind."""
    return replace(value, environment=None, resources=None) if isinstance(value, ToolContext) else value


def _open(reply: bytes, label: str) -> Any:
    """The result in a reply's frame, or the error, raised."""
    try:
        good, *parts = pickle.loads(reply)
        error = None if good or parts[0] is None else pickle.loads(parts[0])
    except Exception as failure:
        raise ResourceError(f"{label}: its reply cannot be read here: {failure}") from failure
    if good:
        return parts[0]
    _, text, trace = parts
    raise (error or ResourceError(f"{label} failed: {text}")) from RemoteTraceback(f"\n{trace}")


def _processes() -> Iterator[tuple[str, int, int]]:
    """(run, pid, process group) of every process whose environment names a run."""
    mark = f"{RUN_VARIABLE}=".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (folder / "environ").read_bytes().split(b"\0"):
                if line.startswith(mark):
                    yield line[len(mark) :].decode(errors="replace"), int(folder.name), os.getpgid(int(folder.name))
