"""A random sequence of operations on a coordinator, compared with the rules after each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from agentfly_core.resources.books import Books, Request
from agentfly_core.testing.report import Report
from agentfly_core.types import Coordinator, CoordinatorStatus, Ticket

CAPACITY, TOTAL = {"a": 2, "b": 4}, 5
KINDS, HOLDERS = ("a", "b", "c"), ("one", "two")
TTL = 60.0
POLL_SECONDS = 0.01


async def walk(
    report: Report, make: Callable[[Mapping[str, int], int | None], Coordinator], *, steps: int, patience: float
) -> None:
    """Take ``steps`` steps; the first difference is a violation and ends the walk."""
    coordinator = make(CAPACITY, TOTAL)
    try:
        await _Walk(report, coordinator, patience).run(steps)
    finally:
        await coordinator.close()


class _Walk:
    def __init__(self, report: Report, coordinator: Coordinator, patience: float) -> None:
        self.report, self.coordinator, self.patience = report, coordinator, patience
        self.rng = random.Random(0)
        self.books = Books(CAPACITY, TOTAL)
        self.requests: dict[str, Request] = {}
        """Owner -> what waits, by the rules."""
        self.tasks: dict[str, asyncio.Task[Ticket]] = {}
        self.retired: dict[str, Ticket] = {}
        self.done: list[str] = []

    async def run(self, steps: int) -> None:
        for holder in HOLDERS:
            await self.coordinator.attend(holder, ttl=TTL)
        for number in range(steps):
            self.done.append(await self.step(number))
            while (turn := self.books.next()) is not None:
                request, claims = turn
                self.books.grant(request, claims, request.owner, request.number, 0.0)
                del self.requests[request.owner]
            if not await self.agrees():
                break
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def step(self, number: int) -> str:
        """One operation on both; its name."""
        owner, kind, holder = str(number), self.rng.choice(KINDS), self.rng.choice(HOLDERS)
        choice = self.rng.choice(
            ("acquire", "acquire", "acquire", "release", "release", "park", "cancel", "try", "retire")
        )
        held = sorted(self.books.tickets)
        if choice == "acquire":
            amount, reuse = self.rng.choice((1, 1, 2)), self.rng.random() < 0.3
            request = Request(number, kind, owner, amount, TTL, holder, reuse)
            self.books.enqueue(request)
            self.requests[owner] = request
            ask = self.coordinator.acquire(kind, owner, amount=amount, ttl=TTL, holder=holder, reuse=reuse)
            self.tasks[owner] = asyncio.ensure_future(ask)
        elif choice in ("release", "park") and held:
            owner = self.rng.choice(held)
            self.books.drop(owner, idle=choice == "park")
            if owner in self.retired:
                ticket = self.retired.pop(owner)
            else:
                ticket = await asyncio.wait_for(self.tasks.pop(owner), self.patience)
            await self.coordinator.release(ticket, idle=choice == "park")
        elif choice == "cancel" and self.requests:
            owner = self.rng.choice(sorted(self.requests))
            self.books.dequeue(self.requests.pop(owner))
            self.tasks.pop(owner).cancel()
        elif choice in ("try", "retire"):
            request = Request(number, kind, owner, 1, TTL, holder)
            idle = choice == "retire"
            if idle:
                self.books.retire(request, owner, number, 0.0)
            elif self.books.free(request):
                self.books.grant(request, {}, owner, number, 0.0)
            taken = await self.coordinator.try_acquire(kind, owner, ttl=TTL, holder=holder, idle=idle)
            if taken is not None:
                self.retired[owner] = taken
        return choice

    async def agrees(self) -> bool:
        """Whether the coordinator comes to say what the rules say."""
        expected = self._facts(self.books.status())
        found = None
        for _ in range(round(self.patience / POLL_SECONDS)):
            found = self._facts(await self.coordinator.status())
            waits = all(self.tasks[owner].done() for owner in self.tasks if owner not in self.requests)
            if found == expected and waits:
                return True
            await asyncio.sleep(POLL_SECONDS)
        what = f"after {len(self.done)} operations, the last being {self.done[-1]}, it says {found}, not {expected}"
        fix = "follow the rules of agentfly_core.resources.books.Books"
        self.report.add(what, where="a random sequence of operations", fix=fix)
        return False

    @staticmethod
    def _facts(rows: Sequence[CoordinatorStatus]) -> dict[str, object]:
        """What must agree: per kind capacity, amounts, and who holds tickets."""
        return {
            row.kind: (row.capacity, row.granted, row.waiting, row.idle, sorted(t.owner for t in row.tickets))
            for row in rows
            if row.granted or row.waiting or row.idle
        }
