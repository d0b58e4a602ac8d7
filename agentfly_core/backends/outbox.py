"""Results on their way from the model's thread to the event loops that wait for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any


class Outbox:
    """Collects outcomes and wakes each loop once for all of them: a wake-up costs a system call and a thread switch."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = defaultdict(list)

    def put(self, future: asyncio.Future[Any], outcome: Any) -> None:
        """Resolve ``future`` with ``outcome``, an exception or a result, at the next ``flush``."""
        self._waiting[future.get_loop()].append((future, outcome))

    def flush(self) -> None:
        """Deliver what was put. A loop that was closed meanwhile has nobody left who waits."""
        for loop, outcomes in self._waiting.items():
            if not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(_resolve, outcomes)
                except RuntimeError:
                    if not loop.is_closed():
                        raise
        self._waiting.clear()


def _resolve(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
