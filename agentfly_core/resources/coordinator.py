"""Capacity counted in this process."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import threading
import time
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from agentfly_core.types import CoordinatorStatus, LeaseLost, ResourceError, Ticket

TOTAL = "*"
"""The kind under which ``status`` reports the total over all kinds."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """One pending ``acquire``. Everything but ``wakeup`` is guarded by the coordinator's lock."""

    number: int
    kind: str
    owner: str
    amount: int
    ttl: float
    loop: asyncio.AbstractEventLoop
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    ticket: Ticket | None = None
    sleeps_until: float = -math.inf
    """The deadline that it last took into account."""

    def wake(self) -> bool:
        """Let its loop look at it again; False if that loop is gone."""
        try:
            self.loop.call_soon_threadsafe(self.wakeup.set)
        except RuntimeError:
            return False
        return True


class InProcessCoordinator:
    """First come, first served within a kind, and over all kinds where only the total is short.

    A request that does not fit yet is never overtaken by a later one that competes for the same capacity, so large
    requests are not starved. Usable from any number of event loops and threads at once.

    Args:
        capacity: kind -> units; a kind that is not listed is limited by ``total`` alone.
        total: units over all kinds; None sets no limit.
        clock: seconds that only grow; tickets expire by it.
    """

    def __init__(
        self,
        capacity: Mapping[str, int] | None = None,
        total: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = dict(capacity or {})
        self._total = total
        if any(units < 0 for units in [*self._capacity.values(), total or 0]):
            raise ValueError(f"capacities must not be negative, got {self._capacity} and a total of {total}")
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._fences = itertools.count(1)
        self._tickets: dict[str, Ticket] = {}
        self._granted: defaultdict[str, int] = defaultdict(int)
        self._queues: dict[str, OrderedDict[int, _Waiter]] = {}
        self._deadlines: list[tuple[float, str]] = []

    async def acquire(self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0) -> Ticket:
        """Wait for ``amount`` of ``kind``. Cancelling the wait leaves no trace.

        Raises:
            ResourceError: more than the whole capacity is asked for.
            LeaseLost: the ticket ran out before the caller's blocked event loop could take it.
        """
        self._check(kind, amount, ttl)
        waiter = _Waiter(next(self._numbers), kind, owner, amount, ttl, asyncio.get_running_loop())
        with self._lock:
            self._queues.setdefault(kind, OrderedDict())[waiter.number] = waiter
            self._advance()
        try:
            while waiter.ticket is None:
                await self._sleep(waiter)
        except BaseException:
            self._abandon(waiter)
            raise
        with self._lock:
            self._advance()
            if waiter.ticket.id not in self._tickets:
                raise LeaseLost(f"{owner}: its {kind} ticket ran out within {ttl} s of the grant: its event loop hung")
            return waiter.ticket

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds.

        Raises:
            LeaseLost: it has expired or was released.
        """
        with self._lock:
            self._advance()
            if ticket.id not in self._tickets:
                raise LeaseLost(f"{ticket.owner}: the {ticket.kind} ticket {ticket.id} expired or was released")
            renewed = replace(self._tickets[ticket.id], expires_at=self._clock() + ttl)
            self._keep(renewed)
            return renewed

    async def release(self, ticket: Ticket) -> None:
        """Give it back; doing so twice, or after expiry, does nothing."""
        with self._lock:
            self._drop(ticket.id)
            self._advance()

    async def status(self) -> list[CoordinatorStatus]:
        """One row a kind, sorted; the row ``*`` is the total over all kinds."""
        with self._lock:
            self._advance()
            kinds = sorted({*self._capacity, *self._queues, *(t.kind for t in self._tickets.values())})
            rows = [self._row(kind) for kind in kinds]
        granted, waiting = sum(r.granted for r in rows), sum(r.waiting for r in rows)
        return [CoordinatorStatus(TOTAL, self._total, granted, waiting), *rows]

    def _row(self, kind: str) -> CoordinatorStatus:
        waiting = sum(w.amount for w in self._queues.get(kind, {}).values())
        tickets = tuple(t for t in self._tickets.values() if t.kind == kind)
        return CoordinatorStatus(kind, self._capacity.get(kind), self._granted[kind], waiting, tickets)

    def _check(self, kind: str, amount: int, ttl: float) -> None:
        if amount < 1 or not ttl > 0:
            raise ValueError(f"amount must be at least 1 and ttl positive, got {amount} and {ttl}")
        for what, limit in ((kind, self._capacity.get(kind)), ("all kinds together", self._total)):
            if limit is not None and amount > limit:
                raise ResourceError(f"{amount} of {kind} asked for, but the whole capacity of {what} is {limit}")

    async def _sleep(self, waiter: _Waiter) -> None:
        """Until the waiter is woken, or the next ticket may have expired."""
        with self._lock:
            self._advance()
            waiter.wakeup.clear()
            if waiter.ticket is not None:
                return
            deadline = self._next_deadline()
            waiter.sleeps_until = math.inf if deadline is None else deadline
        pause = None if deadline is None else max(0.0, deadline - self._clock())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(waiter.wakeup.wait(), pause)

    def _abandon(self, waiter: _Waiter) -> None:
        """Undo a wait that was cancelled, whether or not it had just been granted."""
        with self._lock:
            if waiter.ticket is None:
                self._queues.get(waiter.kind, OrderedDict()).pop(waiter.number, None)
            else:
                self._drop(waiter.ticket.id)
            self._advance()

    def _advance(self) -> None:
        """Drop what has expired, then grant all that can be granted. The lock is held."""
        now = self._clock()
        while (deadline := self._next_deadline()) is not None and deadline <= now:
            self._drop(self._deadlines[0][1])
        while (waiter := self._next_grant()) is not None:
            self._grant(waiter)
        for kind in [k for k, queue in self._queues.items() if not queue]:
            del self._queues[kind]

    def _next_grant(self) -> _Waiter | None:
        """The earliest waiter whose turn it is, or None."""
        heads = sorted((next(iter(q.values())) for q in self._queues.values() if q), key=lambda w: w.number)
        for waiter in heads:
            limit = self._capacity.get(waiter.kind)
            if limit is not None and self._granted[waiter.kind] + waiter.amount > limit:
                continue  # short of its own kind only: later requests of other kinds take nothing from it
            if self._total is not None and sum(self._granted.values()) + waiter.amount > self._total:
                return None  # short of the total: whoever came later waits behind it
            return waiter
        return None

    def _grant(self, waiter: _Waiter) -> None:
        del self._queues[waiter.kind][waiter.number]
        if not waiter.wake():
            return
        expires = self._clock() + waiter.ttl
        waiter.ticket = Ticket(uuid.uuid4().hex, waiter.kind, waiter.owner, waiter.amount, next(self._fences), expires)
        self._granted[waiter.kind] += waiter.amount
        self._keep(waiter.ticket)

    def _keep(self, ticket: Ticket) -> None:
        """Store a new or renewed ticket; whoever would sleep beyond its deadline is woken to sleep anew."""
        self._tickets[ticket.id] = ticket
        heapq.heappush(self._deadlines, (ticket.expires_at, ticket.id))
        for queue in self._queues.values():
            for waiter in queue.values():
                if ticket.expires_at < waiter.sleeps_until:
                    waiter.wake()

    def _drop(self, ticket_id: str) -> None:
        if (ticket := self._tickets.pop(ticket_id, None)) is not None:
            self._granted[ticket.kind] -= ticket.amount

    def _next_deadline(self) -> float | None:
        """When the next ticket expires. Entries of tickets that were renewed or released are skipped."""
        while self._deadlines:
            expires_at, ticket_id = self._deadlines[0]
            ticket = self._tickets.get(ticket_id)
            if ticket is not None and ticket.expires_at == expires_at:
                return expires_at
            heapq.heappop(self._deadlines)
        return None
