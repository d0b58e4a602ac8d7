"""One piece of work for all who ask for the same at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """Who asks for a key while somebody works on it gets that one's result, from any thread and loop."""

    def __init__(self) -> None:
        self._running: dict[Hashable, Future[tuple[Any, Exception | None, bool]]] = {}
        self._lock = threading.Lock()

    async def do(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """The result of ``work``: ours, or that of whoever is at it. If that one is cancelled, the next takes over."""
        while True:
            with self._lock:
                running = self._running.get(key)
                if running is None:
                    mine = self._running[key] = Future()
                    mine.set_running_or_notify_cancel()  # a waiter that is cancelled must not cancel it
            if running is None:
                return await self._work(key, mine, work)
            value, error, finished = await asyncio.wrap_future(running)
            if error is not None:
                raise error
            if finished:
                result: T = value
                return result

    async def _work(
        self, key: Hashable, mine: Future[tuple[Any, Exception | None, bool]], work: Callable[[], Awaitable[T]]
    ) -> T:
        value, failure, finished = None, None, False
        try:
            value, finished = await work(), True
            return value
        except Exception as error:
            failure = error
            raise
        finally:
            with self._lock:
                del self._running[key]
            mine.set_result((value, failure, finished))
