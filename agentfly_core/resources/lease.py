"""A resource held for a while."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from agentfly_core.resources.idle import identity_of
from agentfly_core.types import LeaseLost, ResourceSpec, Ticket

MARGIN = 1 / 6
"""The part of a ticket's life by whose end its instance must be gone: the holder gives up that much earlier."""


class HeldLease:
    """What ``ResourceManager.lease`` gives. ``resource`` raises once it is lost or given back.

    Attributes:
        owner: who holds it.
        since: when it was granted, seconds since the epoch.
        lost: why it is over before its time; empty while it is not.
        valid_until: when it is over unless it is renewed, in seconds of ``time.monotonic()``.
        ready: whether its instance has been started.
    """

    def __init__(self, spec: ResourceSpec, owner: str) -> None:
        self.spec = spec
        self.identity = identity_of(spec)
        self.owner = owner
        self.ticket: Ticket
        self.instance: Any = None
        self.since = 0.0
        self.lost = ""
        self.ended = False
        self.ready = False
        self.valid_until = math.inf
        self._limit = math.inf
        self._settled = False
        self._lock = threading.Lock()
        """Its holder ends it on one thread while the housekeeper may lose it on another: only one of them does."""

    @property
    def resource(self) -> Any:
        """The provider's handle.

        Raises:
            LeaseLost: the lease ran out, its instance died, or it was given back.
        """
        if self.ended or self.lost or time.monotonic() > self.valid_until:
            why = self.lost or ("it was released" if self.ended else "it ran out before it could be renewed")
            raise LeaseLost(f"{self.owner}: the lease of {label(self.spec)} is over: {why}")
        return self.instance

    def granted(self, ticket: Ticket, ttl: float) -> None:
        """It has its share of the capacity."""
        self.ticket = ticket
        self.since = time.time()
        self.renewed(ticket, time.monotonic(), ttl)

    def started(self, instance: Any, limit: float) -> None:
        """It has its instance, for at most ``limit`` seconds."""
        self.instance = instance
        self._limit = time.monotonic() + limit
        self.ready = True
        with self._lock:
            self._fence(min(self.valid_until, self._limit))

    def renewed(self, ticket: Ticket, asked: float, ttl: float) -> None:
        """Its ticket is good for ``ttl`` seconds more than when that was ``asked`` for."""
        with self._lock:
            self.ticket = ticket
            self._fence(min(asked + ttl * (1 - MARGIN), self._limit))

    def lose(self, reason: str) -> bool:
        """It is over before its time: nobody can use its instance any more. False if it was over already."""
        with self._lock:
            if self.lost or self._settled:
                return False
            self.lost = reason
            self._fence(-math.inf)
            return True

    def settle(self) -> bool:
        """Its instance is nobody's now and can be leased again. False if it was lost."""
        with self._lock:
            if self.lost:
                return False
            self._settled = True
            fence(self.instance, math.inf)
            return True

    def end(self) -> None:
        """It is being given back."""
        self.ended = True

    def past_limit(self) -> bool:
        """Whether it has lasted as long as it may."""
        return time.monotonic() >= self._limit

    def _fence(self, until: float) -> None:
        if self._settled:
            return
        self.valid_until = -math.inf if self.lost else until
        fence(self.instance, self.valid_until)


def fence(instance: Any, until: float) -> None:
    """Tell an instance that knows of it (``types.Fenced``) how long it may be used."""
    if hasattr(instance, "valid_until"):
        instance.valid_until = until


def label(spec: ResourceSpec) -> str:
    """A spec in a few words."""
    return f"{spec.kind} {spec.target or spec.image!r}".rstrip()
