"""Capacity counted in this process."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agentfly_core.resources.books import TOTAL, Books, Request
from agentfly_core.types import CoordinatorStatus, LeaseLost, Ticket

__all__ = ["TOTAL", "InProcessCoordinator"]


@dataclass(slots=True, eq=False)
class _Waiter(Request):
    """A request, and where to tell of its grant. Guarded by the coordinator's lock."""

    ticket: Ticket | None = None
    future: asyncio.Future[None] | None = None
    """Made only if it has to wait."""


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
        self._books = Books(capacity, total)
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._prefix = uuid.uuid4().hex
        self._deadlines: list[tuple[float, str]] = []
        self._soonest = math.inf
        """Nothing expires before."""
        self._holders: dict[str, float] = {}
        """When each that registered is given up."""
        self._lapsed: set[str] = set()
        self._attending: dict[str, asyncio.Future[None]] = {}
        self._alarm: tuple[float, threading.Timer] | None = None

    async def acquire(
        self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0, holder: str = "", reuse: bool = False
    ) -> Ticket:
        """Wait for ``amount`` of ``kind``; see ``types.Coordinator``. Cancelling the wait leaves no trace.

        Raises:
            ResourceError: more than the whole capacity is asked for.
            LeaseLost: the ticket ran out before the caller's blocked event loop could take it.
        """
        self._books.check(kind, amount, ttl)
        waiter = _Waiter(next(self._numbers), kind, owner, amount, ttl, holder, reuse)
        with self._lock:
            if self._books.enqueue(waiter):
                self._advance()
            if waiter.ticket is not None:
                return waiter.ticket
            future = waiter.future = asyncio.get_running_loop().create_future()
        try:
            await future
        except BaseException:
            self._abandon(waiter)
            raise
        ticket = waiter.ticket
        assert ticket is not None
        with self._lock:
            self._expire()
            if ticket.id not in self._books.tickets:
                raise LeaseLost(f"{owner}: its {kind} ticket ran out within {ttl} s of the grant: its event loop hung")
        return ticket

    async def try_acquire(
        self, kind: str, owner: str, *, ttl: float = 60.0, holder: str = "", idle: bool = False
    ) -> Ticket | None:
        """One unit at once or not at all: of what is free while nobody waits, or of the holder's idle shares."""
        request = Request(next(self._numbers), kind, owner, 1, ttl, holder)
        with self._lock:
            self._advance()
            if idle:
                ticket = self._books.retire(request, self._id(request), request.number, self._clock())
            else:
                ticket = self._take(request, {}) if self._books.free(request) else None
            if ticket is not None:
                self._remember(ticket)
            return ticket

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds.

        Raises:
            LeaseLost: it has expired or was released.
        """
        with self._lock:
            self._advance()
            if ticket.id not in self._books.tickets:
                raise LeaseLost(f"{ticket.owner}: the {ticket.kind} ticket {ticket.id} expired or was released")
            renewed = replace(self._books.tickets[ticket.id], expires_at=self._clock() + ttl)
            self._books.renew(renewed)
            self._remember(renewed)
            return renewed

    async def release(self, ticket: Ticket, *, idle: bool = False) -> bool:
        """Give it back, or keep its share for an idle instance; doing so twice, or after expiry, does nothing."""
        with self._lock:
            self._expire()
            idle = idle and ticket.holder in self._holders
            kept = self._books.drop(ticket.id, idle=idle) and idle
            self._advance()
            return kept

    async def undo(self, ticket: Ticket) -> None:
        """A grant that reached nobody: the idle shares that it used up are its holder's again."""
        with self._lock:
            self._books.undo(ticket)
            self._advance()

    async def attend(self, holder: str, *, ttl: float = 60.0, patience: float = 0.0) -> Mapping[str, int]:
        """Say that the holder lives, and wait for its idle shares to be wanted; see ``types.Coordinator``."""
        with self._lock:
            self._advance()
            self._holders[holder] = until = self._clock() + ttl
            self._soonest = min(self._soonest, until)
            if holder in self._lapsed:
                self._lapsed.discard(holder)
                raise LeaseLost(f"{holder} was not heard of for so long that it lost its idle shares")
            wanted = self._books.recalled().get(holder, {})
            if wanted or patience <= 0:
                return wanted
            future = self._attending[holder] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({future}, timeout=patience)
        finally:
            with self._lock:
                if self._attending.get(holder) is future:
                    del self._attending[holder]
        with self._lock:
            self._advance()
            return self._books.recalled().get(holder, {})

    async def leave(self, holder: str) -> None:
        """Forget a holder and its idle shares."""
        with self._lock:
            self._holders.pop(holder, None)
            self._lapsed.discard(holder)
            self._books.forget(holder)
            self._advance()

    async def close(self) -> None:
        """Nothing to free."""

    async def status(self) -> list[CoordinatorStatus]:
        """One row a kind, sorted; the row ``*`` is the total over all kinds."""
        with self._lock:
            self._advance()
            return self._books.status()

    def _abandon(self, waiter: _Waiter) -> None:
        """Undo a wait that was cancelled, whether or not it had just been granted."""
        with self._lock:
            self._books.dequeue(waiter)
            if waiter.ticket is not None:
                self._books.undo(waiter.ticket)
            self._advance()

    def _advance(self) -> None:
        """Drop what has expired, then grant all that can be granted. The lock is held."""
        self._expire()
        while (turn := self._books.next()) is not None:
            waiter, claims = turn
            assert isinstance(waiter, _Waiter)
            waiter.ticket = self._take(waiter, claims)
            if waiter.future is not None and not _wake(waiter.future):
                self._books.undo(waiter.ticket)  # its loop is gone
        if self._books.waiting:
            if self._attending and self._books.idle:
                for holder in self._books.recalled().keys() & self._attending.keys():
                    _wake(self._attending.pop(holder))
            self._set_alarm()

    def _take(self, request: Request, claims: dict[str, int]) -> Ticket:
        ticket = self._books.grant(request, claims, self._id(request), request.number, self._clock())
        self._remember(ticket)
        return ticket

    def _id(self, request: Request) -> str:
        return f"{self._prefix}-{request.number}"

    def _expire(self) -> None:
        now = self._clock()
        if now < self._soonest:
            return
        while (deadline := self._next_deadline()) is not None and deadline <= now:
            self._books.drop(self._deadlines[0][1])
        for holder in [h for h, until in self._holders.items() if until <= now]:
            del self._holders[holder]
            if self._books.forget(holder):
                self._lapsed.add(holder)
        self._soonest = min((d for d in (deadline, *self._holders.values()) if d is not None), default=math.inf)

    def _remember(self, ticket: Ticket) -> None:
        heapq.heappush(self._deadlines, (ticket.expires_at, ticket.id))
        self._soonest = min(self._soonest, ticket.expires_at)
        if len(self._deadlines) > 1000 + 8 * len(self._books.tickets):
            self._deadlines = [(t.expires_at, t.id) for t in self._books.tickets.values()]
            heapq.heapify(self._deadlines)

    def _next_deadline(self) -> float | None:
        """When the next ticket expires. Entries of tickets that were renewed or released are skipped."""
        while self._deadlines:
            expires_at, ticket_id = self._deadlines[0]
            ticket = self._books.tickets.get(ticket_id)
            if ticket is not None and ticket.expires_at == expires_at:
                return expires_at
            heapq.heappop(self._deadlines)
        return None

    def _set_alarm(self) -> None:
        """Look again when the next ticket or holder expires, whoever else may hang: someone waits for it."""
        if self._soonest == math.inf or (self._alarm is not None and self._alarm[0] <= self._soonest):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        timer = threading.Timer(max(0.001, self._soonest - self._clock()), self._ring)
        timer.daemon = True
        self._alarm = (self._soonest, timer)
        timer.start()

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
            self._advance()


def _wake(future: asyncio.Future[None]) -> bool:
    """Resolve a future of any loop; False if that loop is gone."""
    loop = future.get_loop()
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if loop is running:
        _resolve(future)
        return True
    try:
        loop.call_soon_threadsafe(_resolve, future)
    except RuntimeError:
        return False
    return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
