"""What goes on beside the leases: renewals and health checks, giving up idle instances, keeping others warm."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agentfly_core.resources.background import BackgroundLoop
from agentfly_core.resources.idle import Identity
from agentfly_core.resources.instances import WARMING, Instances
from agentfly_core.resources.lease import MARGIN, HeldLease, label
from agentfly_core.resources.sweeping import sweep_crashed
from agentfly_core.types import Coordinator, LeaseLost, ResourceError, Ticket

log = logging.getLogger("agentfly.resources")

RETRY_SECONDS = 1.0
"""Until a coordinator that cannot be reached, or has no capacity for a warm instance, is asked again."""
LONGEST_PAUSE = 60.0
"""Seconds between attempts to start a warm instance that fails every time."""
STATUS_SECONDS = 1.0
"""Between looks whether the status file must be rewritten."""
HEARTBEAT_SECONDS = 15.0
"""Between rewrites of a status file in which nothing changed."""


class Housekeeper:
    """One manager's thread; see ``ResourceManager`` for the arguments."""

    def __init__(
        self,
        instances: Instances,
        coordinator: Coordinator,
        ttl: float,
        renew_every: float,
        lease_limit: float,
        status_file: Path | None,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self.started = False
        self._instances = instances
        self._coordinator = coordinator
        self._ttl = ttl
        self._renew_every = renew_every
        self._limit = lease_limit
        self._status_file = status_file
        self._status = status
        self._loop = BackgroundLoop("agentfly-resources")
        self._warming: Counter[Identity] = Counter()
        self._failed: defaultdict[Identity, int] = defaultdict(int)
        self._again: dict[Identity, float] = {}
        """When to try to start a warm instance again after a failure."""
        self._missing: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin. Twice does nothing."""
        if not self.started:
            self.started = True
            self._loop.submit(self._run())

    def first_use(self, kind: str) -> None:
        """Note that instances of this kind will exist, and sweep once what crashed runs left of it."""
        try:
            first = self._instances.mark.uses(kind)
        except OSError as error:
            log.warning("should this run crash, what it leaves is not found by later ones: %s", error)
            return
        if first:
            self._loop.submit(self._sweep(kind))

    def poke(self) -> None:
        """Warm instances may be missing."""
        if self._instances.minimum and (event := self._missing) is not None:
            self._loop.call(event.set)

    def close(self) -> None:
        """End, whatever is being done. Twice does nothing."""
        self._loop.close()
        if self._status_file is not None:
            self._status_file.unlink(missing_ok=True)

    async def _run(self) -> None:
        self._missing = asyncio.Event()
        jobs: list[Callable[[], Awaitable[None]]] = [self._renew_all, self._attend, self._refill]
        if self._status_file is not None:
            jobs.append(self._write_status)
        await asyncio.gather(*(self._forever(job) for job in jobs))

    async def _forever(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await job()
            except Exception:
                log.exception("keeping house failed; trying again")
                await asyncio.sleep(RETRY_SECONDS)

    async def _renew_all(self) -> None:
        """One round: renew what is due, and end what has lasted too long."""
        due = time.monotonic() + self._renew_every
        while (left := due - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._limit / 4))
            over = [x for x in list(self._instances.leases) if x.ready and x.past_limit()]
            await asyncio.gather(*(self._lose(lease, f"it lasted {self._limit} s, the limit") for lease in over))
        await asyncio.gather(*(self._renew(lease) for lease in list(self._instances.leases) if not lease.lost))

    async def _renew(self, lease: HeldLease) -> None:
        asked = time.monotonic()
        try:
            lease.renewed(await self._coordinator.renew(lease.ticket, ttl=self._ttl), asked, self._ttl)
            provider = self._instances.providers[lease.spec.kind]
            if lease.ready and not lease.ended:
                healthy = await asyncio.wait_for(provider.health(lease.instance), self._renew_every)
                if not healthy and not lease.ended:
                    await self._lose(lease, "its instance died")
        except LeaseLost as error:
            await self._lose(lease, str(error))
        except Exception as error:
            log.warning("the lease of %s could not be renewed; trying again", label(lease.spec), exc_info=True)
            if time.monotonic() >= lease.valid_until:
                await self._lose(lease, f"it could not be renewed in time: {error}")

    async def _lose(self, lease: HeldLease, reason: str) -> None:
        """End it before its time, unless it has just been given back: its instance is stopped, its share is free."""
        if not lease.lose(reason):
            return
        log.warning("%s lost its lease of %s: %s", lease.owner, label(lease.spec), reason)
        self._instances.gauges.count(lease.spec.kind, "lost")
        if lease.ready:
            await self._instances.stop(self._instances.providers[lease.spec.kind], lease.spec, lease.instance)
            await self._instances.release(lease.ticket)

    async def _attend(self) -> None:
        """Keep the shares of what is idle, and give up what others wait for."""
        heard = time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                wanted = await self._coordinator.attend(self._instances.run_id, ttl=self._ttl, patience=self._ttl / 3)
                heard = asked
            except LeaseLost as error:
                log.warning("idle instances are stopped: %s", error)
                await self._instances.drop_idle()
                continue
            except ResourceError as error:
                if time.monotonic() - heard >= self._ttl * (1 - MARGIN) and len(self._instances.idle):
                    log.warning("idle instances are stopped: %s", error)
                    await self._instances.drop_idle()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await asyncio.gather(*(self._instances.retire(kind) for kind, n in wanted.items() for _ in range(n)))

    async def _refill(self) -> None:
        """Start the warm instances that are missing, then wait until others may be."""
        assert self._missing is not None
        self._missing.clear()
        complete = True
        for identity, want in self._instances.minimum.items():
            missing = want - self._instances.idle.count(identity) - self._warming[identity]
            for _ in range(max(0, missing)):
                complete = False
                if time.monotonic() < self._again.get(identity, 0.0) or not await self._warm_one(identity):
                    break
        try:
            await asyncio.wait_for(self._missing.wait(), None if complete else RETRY_SECONDS)
        except asyncio.TimeoutError:
            return

    async def _warm_one(self, identity: Identity) -> bool:
        """Begin to start one, if there is capacity that nobody waits for."""
        kind = identity[0].kind
        self.first_use(kind)
        await self._instances.register()
        ticket = await self._coordinator.try_acquire(kind, WARMING, ttl=self._ttl, holder=self._instances.run_id)
        if ticket is None:
            return False
        self._warming[identity] += 1
        task = asyncio.ensure_future(self._warm(identity, ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _warm(self, identity: Identity, ticket: Ticket) -> None:
        spec, instances = identity[0], self._instances
        lease = HeldLease(spec, WARMING)
        lease.granted(ticket, self._ttl)
        instances.leases.add(lease)
        try:
            provider = instances.provider(spec)
            instance = await instances.start(provider, spec)
            lease.instance = instance
            if lease.settle():
                await instances.park(lease)
            else:
                await instances.stop(provider, spec, instance)
            self._failed[identity] = 0
        except ResourceError as error:
            await instances.release(ticket)
            self._failed[identity] += 1
            pause = min(LONGEST_PAUSE, 2.0 ** self._failed[identity])
            self._again[identity] = time.monotonic() + pause
            log.warning("no warm instance of %s; trying again in %g s: %s", label(spec), pause, error)
        except asyncio.CancelledError:
            await instances.release(ticket)
            raise
        finally:
            instances.leases.discard(lease)
            self._warming[identity] -= 1
            if self._missing is not None:
                self._missing.set()

    async def _sweep(self, kind: str) -> None:
        await sweep_crashed(self._instances.providers, kinds=frozenset({kind}))

    async def _write_status(self) -> None:
        """Rewrite the status file whenever something changed, and now and then to show that the run lives."""
        assert self._status_file is not None
        written: dict[str, Any] = {}
        while True:
            status = self._status()
            old, new = ({k: v for k, v in x.items() if k != "updated"} for x in (written, status))
            if old != new or status["updated"] - written["updated"] >= HEARTBEAT_SECONDS:
                temporary = self._status_file.with_name(f".partial-{self._status_file.name}")
                temporary.write_text(json.dumps(status, indent=2), encoding="utf-8")
                temporary.replace(self._status_file)
                written = status
            await asyncio.sleep(STATUS_SECONDS)
