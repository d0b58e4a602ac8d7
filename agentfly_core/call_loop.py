"""An event loop for asynchronous code of others, beside the loops of the engine and of the host.

Everything runs on the same one, so that a client shared by several tools stays on its loop. A loop that something
blocks (``time.sleep`` in an ``async def``) is replaced: work that had not begun moves over, later work starts on the
new one, and only what had begun waits for the blocking call.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger("agentfly.calls")

STALL_SECONDS = 5.0
"""How long work may wait to begin before the loop counts as blocked."""

CANCEL_SECONDS = 1.0
"""How long a loop may take to look at a cancellation before it counts as blocked."""


class _Job(Generic[T]):
    """One piece of work: begun at most once, on whichever loop comes to it first."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self.result: Future[T] = Future()
        self.home: _LoopThread
        """The loop that it waits for or runs on."""
        self.waits_since = 0.0
        self.begun = False
        self._work = work
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._task: asyncio.Future[None] | None = None
        self._withdrawn = False

    def begin(self, home: _LoopThread) -> None:
        """Start it, on the loop's thread, unless it has begun elsewhere or was withdrawn."""
        with self._lock:
            if self.begun or self._withdrawn:
                return
            self.begun, self.home = True, home
        self._task = self._context.run(home.loop.create_task, self._run())

    def withdraw(self) -> bool:
        """Never begin it; False if it has begun."""
        with self._lock:
            self._withdrawn = True
            return not self.begun

    def cancel(self) -> None:
        """Cancel what has begun, on its loop's thread."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            try:
                value = await self._work()
            except BaseException as error:  # raised where the result is awaited; it must not end the loop
                self.result.set_exception(error)
            else:
                self.result.set_result(value)


class _LoopThread:
    """An event loop on a daemon thread, with which a blocking call does not keep the process alive."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.jobs: set[_Job[Any]] = set()
        self.blocked = False
        _loops.add(self.loop)
        threading.Thread(target=self._main, name="agentfly-calls", daemon=True).start()

    def take(self, job: _Job[Any]) -> None:
        """Begin it when its turn comes."""
        job.home, job.waits_since = self, time.monotonic()
        self.jobs.add(job)
        self.loop.call_soon_threadsafe(job.begin, self)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_lock = threading.Lock()
_current: _LoopThread | None = None
_loops: set[asyncio.AbstractEventLoop] = set()


async def on_call_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Await ``work()`` on the call loop, from any loop; what it raises is raised here.

    Cancelling the wait cancels the work and waits for its end, unless the loop is blocked.
    """
    if asyncio.get_running_loop() in _loops:
        return await work()
    job = _Job(work)
    _submit(job)
    waiting = asyncio.wrap_future(job.result)
    try:
        while not (await asyncio.wait({waiting}, timeout=STALL_SECONDS))[0]:
            if not job.begun and time.monotonic() - job.waits_since >= STALL_SECONDS:
                _replace(job.home)
        return waiting.result()
    except asyncio.CancelledError:
        await _cancel(job, waiting)
        raise
    finally:
        job.home.jobs.discard(job)
        if not waiting.cancel() and not waiting.cancelled():
            waiting.exception()  # seen: what ended while its wait was being cancelled is no unretrieved error


def _submit(job: _Job[Any]) -> None:
    global _current
    with _lock:
        if _current is None:
            _current = _LoopThread()
        _current.take(job)


def _replace(blocked: _LoopThread) -> None:
    """Put another loop in the place of a blocked one, and move to it what has not begun."""
    global _current
    with _lock:
        if blocked.blocked:
            return
        blocked.blocked = True
        _current = _LoopThread()
        for job in [job for job in blocked.jobs if not job.begun]:
            _current.take(job)
    log.warning(
        "an async function blocks its event loop, which is left behind: it must await whatever takes long, "
        "or be a plain function, which gets a thread of its own"
    )


async def _cancel(job: _Job[Any], waiting: asyncio.Future[Any]) -> None:
    """End the work. A loop that does not even look at the request is blocked."""
    if job.result.done() or job.withdraw():
        return
    looked = threading.Event()

    def cancel() -> None:
        looked.set()
        job.cancel()

    job.home.loop.call_soon_threadsafe(cancel)
    while not (await asyncio.wait({waiting}, timeout=CANCEL_SECONDS))[0]:
        if not looked.is_set():
            _replace(job.home)
            return
