"""At most so many requests to one host in a second, whichever chain, thread or loop makes them."""

from __future__ import annotations

import asyncio
import threading
import time


class Pacer:
    """Hands out places in time, host by host."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    async def wait(self, host: str, *, interval: float = 0.0, at_most: float) -> bool:
        """Sleep until a request to ``host`` may be made; False, at once, if that takes more than ``at_most`` seconds.

        Args:
            interval: seconds that the host wants between requests, if more than ours.
        """
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next.get(host, now))
            if start - now > at_most:
                return False
            self._next[host] = start + max(self._interval, interval)
            self._forget(now)
        await asyncio.sleep(start - now)
        return True

    def hold(self, host: str, seconds: float) -> None:
        """Make nobody ask the host for so long."""
        with self._lock:
            self._next[host] = max(self._next.get(host, 0.0), time.monotonic() + seconds)

    def _forget(self, now: float) -> None:
        if len(self._next) > 4096:
            self._next = {host: start for host, start in self._next.items() if start > now}
