"""One thread with an event loop of its own that carries every sandbox's stream.

A sandbox stays warm longer than the loop of whoever leased it, so it can belong to none of those.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 32
"""For what blocks: starting and ending processes, talking to a container engine."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def io_loop() -> asyncio.AbstractEventLoop:
    """The loop, started with its daemon thread on first use, anew in a forked child."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            _loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(THREADS, "agentfly-sandboxes"))
            threading.Thread(target=_loop.run_forever, name="agentfly-sandboxes", daemon=True).start()
        return _loop


async def on_io(work: Coroutine[Any, Any, T], *, dispose: Callable[[T], Coroutine[Any, Any, None]] | None = None) -> T:
    """Run ``work`` on the loop and wait for it. Cancelling cancels it and waits until it has cleaned up.

    Args:
        dispose: gets a result that came in spite of the cancellation, on the loop as well.
    """
    loop = io_loop()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    cancelled = threading.Event()

    async def guarded() -> None:
        task = asyncio.ensure_future(work)
        tasks.append(task)
        if cancelled.is_set():
            task.cancel()
        try:
            done.set_result(await task)
        except BaseException as error:
            done.set_exception(error)

    tasks: list[asyncio.Future[T]] = []
    asyncio.run_coroutine_threadsafe(guarded(), loop)

    def cancel() -> None:
        cancelled.set()
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

    try:
        await settled(asyncio.ensure_future(_until(done)), on_cancel=cancel)
    except asyncio.CancelledError:
        if dispose is not None and done.exception() is None:
            await settled(asyncio.ensure_future(on_io(dispose(done.result()))))
        raise
    return done.result()


async def settled(work: asyncio.Future[Any], *, on_cancel: Callable[[], None] = lambda: None) -> None:
    """Wait until ``work`` is done, well or not, even if the caller is cancelled: that is raised afterwards."""
    interruption: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            interruption = error
            on_cancel()
    if interruption is not None:
        raise interruption


async def _until(done: concurrent.futures.Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    done.add_done_callback(lambda _: _poke(loop, ended))
    await ended.wait()


def _poke(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(event.set)
