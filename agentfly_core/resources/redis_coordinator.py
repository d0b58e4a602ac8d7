"""Capacity counted by a Redis server, for every process that names the same server and pool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any

from agentfly_core.resources.background import BackgroundLoop
from agentfly_core.resources.books import TOTAL, Books
from agentfly_core.resources.redis_link import Execute, RedisLink, shown
from agentfly_core.resources.redis_memory import RedisMemory
from agentfly_core.resources.redis_replies import ms, rows_of, server_of, ticket_of
from agentfly_core.resources.redis_scripts import scripts
from agentfly_core.types import CoordinatorStatus, LeaseLost, Ticket, UsageError

log = logging.getLogger("agentfly.resources")

LOOK_SECONDS = 1.0
"""Between messages of a process that its waiters still wait."""
PATIENCE = 10.0
"""Seconds of silence after which the server takes a process's waiters for dead."""


class RedisCoordinator:
    """First come, first served over all processes; see ``types.Coordinator``. Usable from any event loop.

    The server's clock counts. After it was restarted or emptied, nothing is granted for one lease time, in which every
    process tells what it holds, so that the capacity is not exceeded. A process that waits says so every second; one
    that died blocks nobody.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``, with password and database.
        capacity: kind -> units; the same in all processes. None, without a total, goes by what others say.
        total: units over all kinds; None sets no limit.
        name: of the pool; those of another name are counted apart.
        lease_time: seconds that a ticket lasts at most without being renewed; the same in all processes.
        timeout: seconds that connecting and each reply may take.
        outage: seconds for which the server may be gone before calls fail.
    """

    def __init__(
        self,
        url: str,
        capacity: Mapping[str, int] | None = None,
        total: int | None = None,
        *,
        name: str = "default",
        lease_time: float = 60.0,
        timeout: float = 5.0,
        outage: float = 30.0,
    ) -> None:
        self._rules = Books(capacity, total)
        limits = {**self._rules.capacity, **({} if total is None else {TOTAL: total})}
        self._limits = "" if capacity is None and total is None else json.dumps(limits, sort_keys=True)
        self._url = url
        self._name = name
        self._lease_time = lease_time
        self._prefix = f"agentfly:{{{name}}}:"
        self._client = secrets.token_hex(8)
        self._loop = BackgroundLoop("agentfly-redis")
        self._link = RedisLink(url, scripts(), self._hello, timeout=timeout, outage=outage)
        self._epoch = ""
        self._number = 0
        # What follows is touched on the loop's thread only.
        self._waiting: dict[str, tuple[dict[str, Any], asyncio.Future[str]]] = {}
        self._memory = RedisMemory()
        self._recalls: dict[str, asyncio.Event] = {}
        self._lapsed: set[str] = set()
        """Holders whose idle shares a restarted server has forgotten, and who have not been told yet."""
        self._chores: list[asyncio.Task[None]] = []

    async def acquire(
        self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0, holder: str = "", reuse: bool = False
    ) -> Ticket:
        """Wait for ``amount`` of ``kind``. Cancelling the wait leaves no trace.

        Raises:
            ResourceError: more than the whole capacity is asked for, or the server cannot be reached.
        """
        self._check(kind, amount, ttl)
        request = self._request(kind, owner, amount, ttl, holder, reuse)
        try:
            return await self._loop.run(self._acquire(request))
        except asyncio.CancelledError:
            self._loop.submit(self._abandon(request["id"]))
            raise

    async def try_acquire(
        self, kind: str, owner: str, *, ttl: float = 60.0, holder: str = "", idle: bool = False
    ) -> Ticket | None:
        """One unit at once or not at all: of what is free while nobody waits, or of the holder's idle shares."""
        self._check(kind, 1, ttl)
        request = self._request(kind, owner, 1, ttl, holder, False)
        try:
            return await self._loop.run(self._try(request, idle))
        except asyncio.CancelledError:
            self._loop.submit(self._abandon(request["id"]))
            raise

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds.

        Raises:
            LeaseLost: it has expired or was released.
        """
        self._check(ticket.kind, 1, ttl)
        return await self._loop.run(self._renew(ticket, ttl))

    async def release(self, ticket: Ticket, *, idle: bool = False) -> bool:
        """Give it back, or keep its share for an idle instance; doing so twice, or after expiry, does nothing."""
        return await self._loop.run(self._release(ticket, idle))

    async def attend(self, holder: str, *, ttl: float = 60.0, patience: float = 0.0) -> Mapping[str, int]:
        """Say that the holder lives, and wait for its idle shares to be wanted; see ``types.Coordinator``."""
        self._check("", 1, ttl)
        return await self._loop.run(self._attend(holder, ttl, patience))

    async def leave(self, holder: str) -> None:
        """Forget a holder and its idle shares."""
        await self._loop.run(self._leave(holder))

    async def status(self) -> list[CoordinatorStatus]:
        """One row a kind, sorted; the row ``*`` is the total over all kinds. Deadlines are seconds of the epoch."""
        return await self._loop.run(self._status())

    async def close(self) -> None:
        """Disconnect; what is held stays held until it expires."""
        with contextlib.suppress(RuntimeError):  # closed before
            await self._loop.run(self._close())
        await asyncio.to_thread(self._loop.close)

    def _check(self, kind: str, amount: int, ttl: float) -> None:
        self._rules.check(kind, amount, ttl)
        if ttl > self._lease_time:
            raise ValueError(f"a ttl of {ttl} s is longer than the coordinator's lease time, {self._lease_time} s")

    def _request(self, kind: str, owner: str, amount: int, ttl: float, holder: str, reuse: bool) -> dict[str, Any]:
        self._number += 1
        return {
            "id": f"{self._client}-{self._number}-{secrets.token_hex(4)}",
            "kind": kind,
            "owner": owner,
            "amount": amount,
            "ttl": ms(ttl),
            "holder": holder,
            "reuse": reuse,
            "client": self._client,
        }

    async def _run(self, name: str, *arguments: Any) -> Any:
        if not self._chores:
            channel = f"{self._prefix}wake:{self._client}"
            listening = self._link.listen(channel, self._heard)
            self._chores = [asyncio.ensure_future(work) for work in (listening, self._look())]
        return await self._link.run(name, self._prefix, *arguments)

    async def _acquire(self, request: dict[str, Any]) -> Ticket:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[request["id"]] = (request, future)
        try:
            reply = await self._run("acquire", json.dumps(request), ms(PATIENCE)) or await future
        finally:
            self._waiting.pop(request["id"], None)
        return self._memory.hold(reply)

    async def _try(self, request: dict[str, Any], idle: bool) -> Ticket | None:
        reply = await self._run("try", json.dumps(request), int(idle))
        return self._memory.hold(reply) if reply else None

    async def _renew(self, ticket: Ticket, ttl: float) -> Ticket:
        asked = time.monotonic()
        reply = await self._run("renew", ticket.id, ms(ttl))
        if not reply:
            self._memory.drop(ticket.id)
            raise LeaseLost(f"{ticket.owner}: the {ticket.kind} ticket {ticket.id} expired or was released")
        return self._memory.hold(reply, asked)

    async def _release(self, ticket: Ticket, idle: bool) -> bool:
        self._memory.drop(ticket.id)
        kept = bool(await self._run("release", ticket.id, int(idle)))
        if kept:
            self._memory.park(ticket)
        return kept

    async def _attend(self, holder: str, ttl: float, patience: float) -> Mapping[str, int]:
        until = time.monotonic() + patience
        recall = self._recalls.setdefault(holder, asyncio.Event())
        while True:
            recall.clear()
            asked = time.monotonic()
            reply = await self._run("attend", holder, ms(ttl), self._client)
            self._memory.attended(holder, asked + ttl)
            if reply is None or holder in self._lapsed:
                self._lapsed.discard(holder)
                self._memory.lapsed(holder)
                raise LeaseLost(f"{holder} was not heard of for so long that it lost its idle shares")
            wanted: dict[str, int] = json.loads(reply) or {}
            left = min(until - time.monotonic(), ttl / 3)
            if wanted or left <= 0:
                return wanted
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(recall.wait(), left)

    async def _leave(self, holder: str) -> None:
        self._memory.left(holder)
        self._recalls.pop(holder, None)
        await self._run("leave", holder)

    async def _abandon(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)
        self._memory.undo(request_id)
        await self._run("abandon", request_id)

    async def _status(self) -> list[CoordinatorStatus]:
        limits, shared, tickets, requests, quiet = await self._run("status")
        if quiet:
            log.warning("nothing is granted for %.1f s more: the Redis server lost what it had counted", quiet / 1000)
        return rows_of(
            json.loads(limits) or {},
            json.loads(shared) or {},
            [ticket_of(t) for t in tickets],
            map(json.loads, requests),
        )

    async def _close(self) -> None:
        for chore in self._chores:
            chore.cancel()
        if self._chores:
            await asyncio.wait(self._chores)
        await self._link.close()

    async def _look(self) -> None:
        """Say every second who still waits, and hear of grants whose message was lost."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._waiting:
                continue
            try:
                granted, unknown = await self._run("look", ms(PATIENCE), *self._waiting)
                for reply in granted:
                    self._granted(reply)
                for request_id in unknown:
                    if (entry := self._waiting.get(request_id.decode())) is not None and not entry[1].done():
                        await self._run("acquire", json.dumps(entry[0]), ms(PATIENCE))
            except Exception as error:
                for _, future in self._waiting.values():
                    if not future.done():
                        future.set_exception(error)

    def _heard(self, message: bytes) -> None:
        news = json.loads(message)
        if "ticket" in news:
            self._granted(news["ticket"])
        elif (event := self._recalls.get(news["recall"])) is not None:
            event.set()

    def _granted(self, reply: bytes | str) -> None:
        entry = self._waiting.get(json.loads(reply)["id"])
        if entry is not None and not entry[1].done():
            entry[1].set_result(reply if isinstance(reply, str) else reply.decode())

    async def _hello(self, execute: Execute) -> str:
        """Introduce this process on a new connection; a server that has lost what it counted is told what is held.

        Returns:
            the epoch: another one each time that what was counted may have been lost.
        """
        server, age = server_of((await execute([("INFO", "server")]))[0])
        arguments = (server, age, ms(self._lease_time), self._limits, secrets.token_hex(8), self._epoch)
        (reply,) = await execute([("RUN", "hello", self._prefix, *arguments)])
        if isinstance(reply, Exception):
            raise reply
        limits, epoch = (str(text.decode()) for text in reply[:2])
        quiet = reply[2]
        if self._limits not in ("", limits):
            raise UsageError(
                f"others count the pool {self._name!r} at {shown(self._url)} by the limits {limits}, this run by "
                f"{self._limits}: make them equal, or give this run a pool of its own (another name)"
            )
        if quiet:
            log.warning("the Redis server has just begun to count: nothing is granted for %.1f s", quiet / 1000)
        if self._epoch not in ("", epoch):
            self._lapsed |= self._memory.lose_idle()
            for holder in self._lapsed & self._recalls.keys():
                self._recalls[holder].set()
            told = self._memory.restoring()
            told += [("leave", holder) for holder in self._lapsed]
            told += [("acquire", json.dumps(request), ms(PATIENCE)) for request, _ in self._waiting.values()]
            log.warning("the Redis server has forgotten: it is told what is held here (%d messages)", len(told))
            await execute([("RUN", name, self._prefix, *arguments) for name, *arguments in told])
        self._epoch = epoch
        return epoch
