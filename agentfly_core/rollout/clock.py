"""Time that stands still while the engine is paused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

SMALLEST_WAIT = 0.05
"""Seconds between two looks at a deadline that a pause has put off."""


class Clock:
    """Seconds spent unpaused. Read and switched from any thread.

    Args:
        source: seconds that only grow; the ``now`` of another clock makes this one stand still with that one, too.
    """

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._paused_at: float | None = None
        self._paused_for = 0.0

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused_at is not None

    def now(self) -> float:
        """Unpaused seconds since some fixed moment."""
        with self._lock:
            at = self._source() if self._paused_at is None else self._paused_at
            return at - self._paused_for

    def pause(self) -> None:
        """Stand still; doing so twice does nothing."""
        with self._lock:
            if self._paused_at is None:
                self._paused_at = self._source()

    def resume(self) -> None:
        """Go on; doing so twice does nothing."""
        with self._lock:
            if self._paused_at is not None:
                self._paused_for += self._source() - self._paused_at
                self._paused_at = None


class Deadline:
    """Calls ``expire`` on the running loop once ``seconds`` of the clock have passed, unless disarmed before."""

    def __init__(self, clock: Clock, seconds: float, expire: Callable[[], None]) -> None:
        self._clock = clock
        self._at = clock.now() + seconds
        self._expire = expire
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def disarm(self) -> None:
        """Never expire."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._at - self._clock.now()
        if left <= 0:
            self._expire()
        else:
            self._timer = asyncio.get_running_loop().call_later(max(left, SMALLEST_WAIT), self._look)
