"""Calling users' functions: synchronous ones in daemon threads, asynchronous ones on the call loop, none for ever."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias

from agentfly_core.call_loop import on_call_loop
from agentfly_core.types.errors import AgentFlyError

CLEAN_UP_SECONDS = 1.0
"""How long a cancelled asynchronous function may take to clean up before it is left behind."""

MAX_THREADS = 256

_Outcome: TypeAlias = "tuple[Any, BaseException | None]"


class CallFailed(AgentFlyError):
    """The function raised; ``error`` is what. The text begins with the exception's name."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe_error(error))
        self.error = error


class CallTimedOut(AgentFlyError):
    """The function did not end in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it did not finish within {seconds:g} s")


class Limit:
    """At most ``size`` holders at once over all threads and event loops, first come, first served."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            place: Future[None] = Future()
            self._waiting.append(place)
        try:
            await asyncio.wrap_future(place)
        except BaseException:
            if not place.cancel():  # it was granted while the wait was being cancelled
                self._release()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._release()

    def _release(self) -> None:
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1


_threads = Limit(MAX_THREADS)


async def invoke(function: Callable[[], Any], *, timeout: float | None) -> Any:
    """Call ``function`` and return its value.

    A synchronous function runs in a daemon thread of its own, so that one which never ends holds up neither other
    calls nor the interpreter's exit; after the timeout it no longer counts against any limit. Waiting for a thread
    does not count as running. An asynchronous function runs on the call loop (see ``call_loop``), where one that
    blocks holds up neither this loop nor later calls. Cancelling the wait cancels it.

    Raises:
        CallFailed: it raised anything, ``SystemExit`` included.
        CallTimedOut: the timeout (seconds) passed first.
    """
    if inspect.iscoroutinefunction(_plain(function)):
        return await _bounded(_on_call_loop(function), timeout)
    async with _threads:
        return await _bounded(_in_thread(function), timeout)


def describe_error(error: BaseException) -> str:
    """``KeyError: 'x'``: the exception's name, then its text if it has any."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"(its text cannot be had: {type(broken).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


async def _bounded(work: Coroutine[Any, Any, _Outcome], timeout: float | None) -> Any:
    """Run in a task of its own: its being cancelled from inside is then told from our being cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        await _end(task)
        raise CallTimedOut(timeout or 0.0)
    if task.cancelled():
        raise CallFailed(asyncio.CancelledError("the function was cancelled from within"))
    value, error = task.result()
    if error is not None:
        raise CallFailed(error) from error
    return value


async def _captured(function: Callable[[], Any]) -> _Outcome:
    """The value or the exception as data: a task that raises ``SystemExit`` would take the loop down."""
    try:
        value = function()
        while inspect.isawaitable(value):
            value = await value
        return value, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


async def _on_call_loop(function: Callable[[], Any]) -> _Outcome:
    return await on_call_loop(lambda: _captured(function))


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=CLEAN_UP_SECONDS)


async def _in_thread(function: Callable[[], Any]) -> _Outcome:
    future: Future[_Outcome] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result((context.run(function), None))
        except BaseException as error:
            future.set_result((None, error))

    future.set_running_or_notify_cancel()
    threading.Thread(target=run, name="agentfly-call", daemon=True).start()
    value, error = await asyncio.wrap_future(future)
    if error is None and inspect.isawaitable(value):  # a plain function around an asynchronous one
        return await _on_call_loop(lambda: value)
    return value, error
