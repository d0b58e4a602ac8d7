"""Whether a coordinator keeps its contract (``types.Coordinator``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from agentfly_core.testing.coordinator_walk import walk
from agentfly_core.testing.report import Report
from agentfly_core.types import Coordinator, CoordinatorStatus, LeaseLost, ResourceError, Ticket

Make: TypeAlias = Callable[[Mapping[str, int], int | None], Coordinator]

LONG = 30.0
"""Seconds that a ticket lives which must not expire during a check."""
POLL_SECONDS = 0.02


def check_coordinator(make: Make, *, ttl: float = 2.0, patience: float = 30.0, steps: int = 120) -> None:
    """Let a coordinator grant, refuse, expire and call back, and compare it with the rules.

    Args:
        make: called as ``make(capacity, total)``: a new coordinator with nothing granted. It is closed in the end.
            Tickets of 30 seconds must be possible.
        ttl: life in seconds of the tickets that are left to expire; long enough for this machine's hiccups.
        patience: seconds that what must happen may take.
        steps: of a random sequence of operations that is compared with the rules, step by step.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report("the coordinator")
    check = _Check(report, make, ttl, patience)
    for part in check.parts():
        report.run(part, seconds=patience * 4)
    report.run(lambda: walk(report, make, steps=steps, patience=patience), seconds=patience * 4)
    report.finish()


class _Check:
    def __init__(self, report: Report, make: Make, ttl: float, patience: float) -> None:
        self.report, self.make, self.ttl, self.patience = report, make, ttl, patience

    def parts(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Every check, each with a coordinator of its own."""
        return [
            self.is_one,
            self.first_come_first_served,
            self.large_requests,
            self.the_total,
            self.too_much,
            self.expiry,
            self.cancelled_waits,
            self.releases,
            self.idle_shares,
            self.recalled_shares,
            self.lapsed_holders,
        ]

    @contextlib.asynccontextmanager
    async def new(self, capacity: Mapping[str, int], total: int | None = None) -> AsyncIterator[Coordinator]:
        coordinator = self.make(capacity, total)
        try:
            yield coordinator
        finally:
            await coordinator.close()

    def expect(self, good: bool, what: str, where: str, fix: str) -> None:
        self.report.expect(good, what, where=where, fix=fix)

    async def row(self, coordinator: Coordinator, kind: str = "*") -> CoordinatorStatus:
        return {row.kind: row for row in await coordinator.status()}[kind]

    async def until_waiting(self, coordinator: Coordinator, amount: int) -> None:
        """Until so many units are waited for, so that the order of the requests is known."""
        for _ in range(round(self.patience / POLL_SECONDS)):
            if (await self.row(coordinator)).waiting == amount:
                return
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"status never said that {amount} units are waited for")

    def waiter(self, coordinator: Coordinator, kind: str, owner: str, amount: int = 1) -> asyncio.Task[Ticket]:
        return asyncio.ensure_future(coordinator.acquire(kind, owner, amount=amount, ttl=LONG))

    async def granted(self, *tasks: asyncio.Task[Ticket]) -> list[Ticket]:
        _, late = await asyncio.wait(tasks, timeout=self.patience)
        for task in late:
            task.cancel()
        if late:
            raise TimeoutError(f"{len(late)} requests that could be granted were not, within {self.patience:g} s")
        return [task.result() for task in tasks]

    async def is_one(self) -> None:
        async with self.new({"box": 1}) as coordinator:
            good = isinstance(coordinator, Coordinator)
            self.expect(good, "it lacks methods", "the coordinator", "implement agentfly_core.types.Coordinator")

    async def first_come_first_served(self) -> None:
        async with self.new({"box": 1}) as coordinator:
            ticket = await coordinator.acquire("box", "first", ttl=LONG)
            tasks = []
            for number in range(4):
                tasks.append(self.waiter(coordinator, "box", str(number)))
                await self.until_waiting(coordinator, number + 1)
            for number, task in enumerate(tasks):
                await coordinator.release(ticket)
                (ticket,) = await self.granted(task)
                early = [other for other in tasks[number + 1 :] if other.done()]
                fix = "grant in the order of the requests"
                self.expect(not early, "a later request overtook an earlier one", "acquire", fix)
            fences = [task.result().fence for task in tasks]
            fix = "count the fence up with each grant"
            self.expect(fences == sorted(set(fences)), f"the fences are {fences}", "acquire", fix)

    async def large_requests(self) -> None:
        async with self.new({"box": 3}) as coordinator:
            held = [await coordinator.acquire("box", str(i), ttl=LONG) for i in range(3)]
            large = self.waiter(coordinator, "box", "large", 3)
            await self.until_waiting(coordinator, 3)
            small = self.waiter(coordinator, "box", "small")
            await self.until_waiting(coordinator, 4)
            for ticket in held:
                good = not large.done() and not small.done()
                fix = "let nobody take what an earlier, larger request waits for"
                self.expect(good, "a large request was overtaken or granted too early", "acquire", fix)
                await coordinator.release(ticket)
            (ticket,) = await self.granted(large)
            await coordinator.release(ticket)
            await self.granted(small)

    async def the_total(self) -> None:
        async with self.new({"a": 1, "b": 4}, 4) as coordinator:
            a = await coordinator.acquire("a", "a", ttl=LONG)
            second = self.waiter(coordinator, "a", "a2")
            await self.until_waiting(coordinator, 1)
            (b,) = await self.granted(self.waiter(coordinator, "b", "b"))  # short of its own kind only: b may pass
            big = self.waiter(coordinator, "b", "b3", 3)
            await self.until_waiting(coordinator, 4)
            late = self.waiter(coordinator, "c", "c")
            await self.until_waiting(coordinator, 5)
            good = not any(task.done() for task in (second, big, late))
            fix = "where the total is short, let no later request of any kind pass"
            self.expect(good, "a request took what an earlier one waited for", "acquire with a total", fix)
            await coordinator.release(b)
            (big_ticket,) = await self.granted(big)
            await coordinator.release(a)
            await self.granted(second)
            await coordinator.release(big_ticket)
            await self.granted(late)

    async def too_much(self) -> None:
        async with self.new({"box": 2}, 3) as coordinator:
            fix = "raise ResourceError for what can never be granted"
            for kind, amount in (("box", 3), ("other", 4)):
                try:
                    await asyncio.wait_for(coordinator.acquire(kind, "a", amount=amount, ttl=LONG), self.patience)
                    self.report.add("it is granted", where=f"acquire {amount} {kind}", fix=fix)
                except ResourceError:
                    pass
                except asyncio.TimeoutError:
                    self.report.add("it waits for ever", where=f"acquire {amount} {kind}", fix=fix)

    async def expiry(self) -> None:
        async with self.new({"box": 2}) as coordinator:
            lost = await coordinator.acquire("box", "crashed", ttl=self.ttl)
            kept = await coordinator.acquire("box", "renewed", ttl=self.ttl)
            kept = await coordinator.renew(kept, ttl=LONG)
            (ticket,) = await self.granted(self.waiter(coordinator, "box", "next"))
            owners = sorted(t.owner for t in (await self.row(coordinator, "box")).tickets)
            fix = "free what is not renewed, keep what is"
            self.expect(owners == ["next", "renewed"], f"{owners} hold tickets", "after an expiry", fix)
            await self.lost(coordinator, lost, "an expired ticket")
            await coordinator.release(lost)
            fix = "let a stale release change nothing"
            count = (await self.row(coordinator)).granted
            self.expect(count == 2, f"{count} are granted", "release of an expired ticket", fix)
            await coordinator.renew(kept, ttl=LONG)
            await coordinator.release(ticket)

    async def lost(self, coordinator: Coordinator, ticket: Ticket, what: str) -> None:
        fix = "raise LeaseLost"
        try:
            await coordinator.renew(ticket, ttl=LONG)
            self.report.add("it is renewed", where=f"renew of {what}", fix=fix)
        except LeaseLost:
            pass

    async def cancelled_waits(self) -> None:
        async with self.new({"box": 2}) as coordinator:
            held = await coordinator.acquire("box", "held", ttl=LONG)
            large = self.waiter(coordinator, "box", "large", 2)
            await self.until_waiting(coordinator, 2)
            small = self.waiter(coordinator, "box", "small")
            await self.until_waiting(coordinator, 3)
            large.cancel()
            (ticket,) = await self.granted(small)
            doomed = self.waiter(coordinator, "box", "doomed")
            await self.until_waiting(coordinator, 1)
            release = asyncio.ensure_future(
                coordinator.release(ticket)
            )  # cancelled while, before or after it is granted
            await asyncio.sleep(0)
            doomed.cancel()
            await release
            await self.granted(self.waiter(coordinator, "box", "next"))
            await coordinator.release(held)
            await self.until_waiting(coordinator, 0)

    async def releases(self) -> None:
        async with self.new({"box": 1}) as coordinator:
            ticket = await coordinator.acquire("box", "a", ttl=LONG, amount=1)
            await coordinator.release(ticket)
            await coordinator.release(ticket)
            row = await self.row(coordinator, "box")
            fix = "let a second release do nothing"
            good = (row.granted, row.waiting, row.capacity) == (0, 0, 1)
            self.expect(good, f"status says {row}", "after releasing twice", fix)
            await self.lost(coordinator, ticket, "a released ticket")

    async def idle_shares(self) -> None:
        async with self.new({"box": 2}) as coordinator:
            ticket = await coordinator.acquire("box", "a", ttl=LONG, holder="me")
            kept = await coordinator.release(ticket, idle=True)
            fix = "keep idle shares only of holders that attend"
            self.expect(not kept, "an unknown holder keeps a share", "release(idle=True)", fix)
            await coordinator.attend("me", ttl=LONG)
            ticket = await coordinator.acquire("box", "a", ttl=LONG, holder="me")
            kept = await coordinator.release(ticket, idle=True)
            row = await self.row(coordinator, "box")
            good = (kept, row.granted, row.idle) == (True, 0, 1)
            fix = "keep the share as an idle one of the ticket's holder"
            self.expect(good, f"it said {kept}, status {row}", "release(idle=True)", fix)
            free = await coordinator.try_acquire("box", "b", ttl=LONG, holder="me")
            none = await coordinator.try_acquire("box", "c", ttl=LONG, holder="me")
            fix = "give what is free, never what is idle"
            self.expect(free is not None and none is None, f"it gave {free} and {none}", "try_acquire", fix)
            await coordinator.release(free or ticket)
            again = await coordinator.acquire("box", "d", ttl=LONG, holder="me", reuse=True)
            fix = "with reuse, use up the holder's idle shares first, and say so in Ticket.claimed"
            self.expect(again.claimed == (("box", 1),), f"claimed is {again.claimed}", "acquire(reuse=True)", fix)
            await coordinator.release(again, idle=True)
            await coordinator.leave("me")
            row = await self.row(coordinator, "box")
            self.expect(row.idle == 0, f"{row.idle} are idle", "leave", "free the holder's idle shares")

    async def recalled_shares(self) -> None:
        async with self.new({"box": 1}) as coordinator:
            await coordinator.attend("me", ttl=LONG)
            ticket = await coordinator.acquire("box", "a", ttl=LONG, holder="me")
            await coordinator.release(ticket, idle=True)
            attending = asyncio.ensure_future(coordinator.attend("me", ttl=LONG, patience=LONG))
            other = self.waiter(coordinator, "box", "other")
            wanted = dict(await asyncio.wait_for(attending, self.patience))
            fix = "call idle shares back as soon as another holder waits for them"
            self.expect(wanted == {"box": 1}, f"it gave {wanted}", "attend while another waits", fix)
            share = await coordinator.try_acquire("box", "stopping", ttl=LONG, holder="me", idle=True)
            again = dict(await coordinator.attend("me", ttl=LONG))
            good = share is not None and not again and not other.done()
            fix = "turn one idle share into a ticket, and grant it to who waits only when that is released"
            self.expect(good, f"it gave {share}, attend {again}", "try_acquire(idle=True)", fix)
            if share is not None:
                await coordinator.release(share)
            await self.granted(other)
            nothing = await coordinator.try_acquire("box", "b", ttl=LONG, holder="me", idle=True)
            fix = "give None where there is no idle share"
            self.expect(nothing is None, f"it gave {nothing}", "try_acquire(idle=True)", fix)

    async def lapsed_holders(self) -> None:
        async with self.new({"box": 1}) as coordinator:
            await coordinator.attend("me", ttl=LONG)
            ticket = await coordinator.acquire("box", "a", ttl=LONG, holder="me")
            await coordinator.release(ticket, idle=True)
            await coordinator.attend("me", ttl=self.ttl)
            (ticket,) = await self.granted(self.waiter(coordinator, "box", "other"))
            fix = "raise LeaseLost once when a holder that lost idle shares comes back"
            try:
                await coordinator.attend("me", ttl=LONG)
                self.report.add("it says nothing", where="attend after the idle shares expired", fix=fix)
            except LeaseLost:
                await coordinator.attend("me", ttl=LONG)
            await coordinator.release(ticket)
