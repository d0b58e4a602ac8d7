"""What a manager counts about itself."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from agentfly_core.types import ResourceSpec

FAILURES = ("start", "health", "reset", "stop", "lost")
"""What can go wrong with an instance."""


class _Kind:
    """Numbers of one kind since the last report, and how many are leased now."""

    def __init__(self, now: float) -> None:
        self.leased = 0
        self.changed = now
        self.clear(now)

    def clear(self, now: float) -> None:
        self.began = self.changed = now
        self.area = 0.0
        """Leases times seconds."""
        self.peak = self.leased
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.longest: defaultdict[str, float] = defaultdict(float)

    def allocate(self, now: float, change: int) -> None:
        self.area += self.leased * (now - self.changed)
        self.leased += change
        self.changed = now
        self.peak = max(self.peak, self.leased)

    def take(self, what: str, seconds: float) -> None:
        self.counts[what] += 1
        self.seconds[what] += seconds
        self.longest[what] = max(self.longest[what], seconds)


class Gauges:
    """Leases, waits, starts and failures, by kind. Usable from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}
        self._waiting: dict[object, tuple[ResourceSpec, str, float]] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        """(kind, what) -> how often, since the beginning."""

    def leased(self, kind: str, change: int) -> None:
        """An instance was handed out (1) or came back (-1)."""
        with self._lock:
            self._of(kind).allocate(self._clock(), change)

    def took(self, kind: str, what: str, seconds: float) -> None:
        """A ``wait`` for capacity or the ``start`` of an instance took so long."""
        with self._lock:
            self._of(kind).take(what, seconds)

    def count(self, kind: str, what: str) -> None:
        """One of ``FAILURES`` happened, or an instance was ``reused``."""
        with self._lock:
            if what in FAILURES:
                self.failures[kind, what] += 1
            self._of(kind).counts["failed" if what in FAILURES else what] += 1

    def wait_began(self, key: object, spec: ResourceSpec, owner: str) -> None:
        """Somebody began to wait for capacity."""
        self._waiting[key] = (spec, owner, time.time())

    def wait_ended(self, key: object) -> None:
        """That wait is over."""
        self._waiting.pop(key, None)

    def waiting(self) -> list[tuple[ResourceSpec, str, float]]:
        """(spec, owner, since in seconds of the epoch) of everyone who waits for capacity."""
        return list(self._waiting.copy().values())

    def report(self) -> dict[str, float]:
        """Metrics since the last report, by name; empty for kinds of which nothing was leased.

        ``allocated_mean`` is the average over time of instances in use, ``allocated_max`` their greatest number.
        """
        metrics: dict[str, float] = {}
        with self._lock:
            now = self._clock()
            for kind, own in sorted(self._kinds.items()):
                own.allocate(now, 0)
                elapsed = now - own.began
                if own.counts or own.peak:
                    values = {
                        "allocated_mean": own.area / elapsed if elapsed > 0 else float(own.leased),
                        "allocated_max": own.peak,
                        "leases": own.counts["wait"],
                        "reused": own.counts["reused"],
                        "failures": own.counts["failed"],
                    }
                    for what in ("wait", "start"):
                        if own.counts[what]:
                            values[f"{what}_seconds_mean"] = own.seconds[what] / own.counts[what]
                            values[f"{what}_seconds_max"] = own.longest[what]
                    metrics |= {f"resources/{kind}/{name}": float(value) for name, value in values.items()}
                own.clear(now)
        return metrics

    def _of(self, kind: str) -> _Kind:
        if kind not in self._kinds:
            self._kinds[kind] = _Kind(self._clock())
        return self._kinds[kind]
