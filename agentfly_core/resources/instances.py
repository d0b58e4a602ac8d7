"""The instances of one process, leased and idle: each has a share of the capacity as long as it exists.

An idle instance is taken out of the pool only by whoever has got a share for it from the coordinator: with the ticket
of a lease (``Ticket.claimed``) or one of ``try_acquire(..., idle=True)``. So there are never more instances than
shares, whatever happens at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from agentfly_core.resources.gauges import Gauges
from agentfly_core.resources.idle import Identity, IdlePool, identity_of
from agentfly_core.resources.lease import HeldLease, label
from agentfly_core.resources.marks import RunMark
from agentfly_core.resources.waiting import finish, within
from agentfly_core.types import (
    AgentFlyError,
    Coordinator,
    ResourceError,
    ResourceProvider,
    ResourceSpec,
    Ticket,
    UnknownName,
)

log = logging.getLogger("agentfly.resources")

WARMING = "(warm)"
"""Owner of a share for which an instance is started ahead or an idle one stopped."""


class Instances:
    """Starts, hands out, takes back and stops; see ``ResourceManager`` for the arguments."""

    def __init__(
        self,
        coordinator: Coordinator,
        providers: Mapping[str, ResourceProvider],
        run_id: str,
        *,
        ttl: float,
        max_idle: int,
        reset_timeout: float,
    ) -> None:
        self.providers = dict(providers)
        self.run_id = run_id
        self.idle = IdlePool()
        self.leases: set[HeldLease] = set()
        self.minimum: dict[Identity, int] = {}
        self.gauges = Gauges()
        self.mark = RunMark(run_id)
        self._coordinator = coordinator
        self._ttl = ttl
        self._max_idle = max_idle
        self._reset_timeout = reset_timeout
        self._closed = False
        self._started: set[str] = set()

    def provider(self, spec: ResourceSpec) -> ResourceProvider:
        """Who serves a spec.

        Raises:
            ResourceError: nobody does, or its isolation is weaker than the spec demands.
        """
        if spec.kind not in self.providers:
            raise UnknownName("resource kind", spec.kind, self.providers)
        provider = self.providers[spec.kind]
        if spec.min_isolation and provider.isolation < spec.min_isolation:
            raise ResourceError(
                f"{label(spec)} demands isolation {spec.min_isolation.name}, but {spec.kind!r} gives only "
                f"{provider.isolation.name}"
            )
        return provider

    def set_minimum(self, spec: ResourceSpec, count: int) -> None:
        """How many idle ones of a spec there should be."""
        self.provider(spec)
        minimum = {**self.minimum, identity_of(spec): count}
        if count < 0 or sum(minimum.values()) > self._max_idle:
            raise ResourceError(f"{count} warm instances of {label(spec)}: together at most {self._max_idle} may idle")
        self.minimum = minimum

    async def register(self) -> None:
        """Make this process known to the coordinator, before anything is idle."""
        await self._coordinator.attend(self.run_id, ttl=self._ttl)

    async def take(self, provider: ResourceProvider, lease: HeldLease, refuse: Callable[[], None]) -> Any:
        """A healthy warm instance, or a new one, on a ticket that has been granted.

        Args:
            refuse: raises if nothing is leased any more. It is asked only when what the ticket claimed is out of the
                pool: its share is the ticket's, and may be another's as soon as that is released.
        """
        spec, instance = lease.spec, None
        doomed: list[tuple[Identity, Any]] = []
        for kind, units in lease.ticket.claimed:
            for _ in range(units):
                if kind == spec.kind and instance is None and (instance := self.idle.pop(lease.identity)) is not None:
                    continue
                if (entry := self.idle.pop_oldest(kind, spare=self.minimum)) is not None:
                    doomed.append(entry)
        if doomed:
            try:
                await self._stop_all(doomed)
            except asyncio.CancelledError:
                if instance is not None:
                    await self.stop(provider, spec, instance)
                raise
        try:
            refuse()
        except ResourceError:
            if instance is not None:
                await self.stop(provider, spec, instance)
            raise
        if instance is not None:
            if await self._healthy(provider, spec, instance):
                self.gauges.count(spec.kind, "reused")
                return instance
            self.gauges.count(spec.kind, "health")
            await self.stop(provider, spec, instance)
        return await self.start(provider, spec)

    async def start(self, provider: ResourceProvider, spec: ResourceSpec) -> Any:
        """A new instance.

        Raises:
            ResourceError: why there is none.
        """
        began = time.monotonic()
        try:
            instance = await provider.start(spec, run_id=self.run_id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.gauges.count(spec.kind, "start")
            if isinstance(error, ResourceError):
                raise
            raise ResourceError(f"{label(spec)} cannot be started: {type(error).__name__}: {error}") from error
        self._started.add(spec.kind)
        self.gauges.took(spec.kind, "start", time.monotonic() - began)
        return instance

    async def give_back(self, lease: HeldLease, *, keep: bool) -> None:
        """Keep the instance warm if it can be made as new, stop it otherwise; then free its capacity."""
        provider = self.providers[lease.spec.kind]
        try:
            if keep and self._max_idle and await self._reset(provider, lease) and lease.settle():
                await self.park(lease)
            else:
                await self.stop(provider, lease.spec, lease.instance)
                await self.release(lease.ticket)
        finally:
            self.leases.discard(lease)

    async def park(self, lease: HeldLease) -> None:
        """Make a settled lease's instance idle, on its share. If more are idle than may be, the oldest goes."""
        identity, instance = lease.identity, lease.instance
        self.idle.add(identity, instance)
        kept = await self.release(lease.ticket, idle=True)
        if (not kept or self._closed) and self.idle.remove(identity, instance):
            await self.stop(self.providers[lease.spec.kind], lease.spec, instance)
        while len(self.idle) > self._max_idle and await self.retire():
            pass

    async def retire(self, kind: str | None = None) -> bool:
        """Stop the one that has been idle longest (of this kind), and free its share; False if there is none."""
        if (kind := kind or self.idle.oldest_kind(spare=self.minimum)) is None:
            return False
        share = await self._coordinator.try_acquire(kind, WARMING, ttl=self._ttl, holder=self.run_id, idle=True)
        if share is None:
            return False
        if (entry := self.idle.pop_oldest(kind, spare=self.minimum)) is not None:
            await self._stop_all([entry])
        await self.release(share)
        return True

    async def drop_idle(self) -> None:
        """Stop all that are idle: their shares are lost."""
        await self._stop_all(self.idle.clear())

    async def release(self, ticket: Ticket, *, idle: bool = False) -> bool:
        """Give a ticket back. If the coordinator cannot be reached, it expires by itself."""
        try:
            return await self._coordinator.release(ticket, idle=idle)
        except ResourceError as error:
            log.warning("a share of %s is freed only when it expires: %s", ticket.kind, error)
            return False

    async def stop(self, provider: ResourceProvider, spec: ResourceSpec, instance: Any) -> None:
        """Stop an instance, even if the caller is cancelled; a failure is logged."""

        async def stop() -> None:
            try:
                await provider.stop(instance)
            except Exception as error:
                self.gauges.count(spec.kind, "stop")
                log.warning("stopping %s failed: %s", label(spec), error, exc_info=_unexpected(error))

        await finish(stop())

    async def close(self) -> None:
        """Stop everything, free what the coordinator counts for it, and sweep what may be left."""
        self._closed = True
        leases = list(self.leases)
        for lease in leases:
            lease.lose("the resource manager was closed")
        instances = self.idle.clear() + [(lease.identity, lease.instance) for lease in leases if lease.ready]
        await self._stop_all(instances)
        try:
            await self._coordinator.leave(self.run_id)
        except ResourceError as error:
            log.warning("idle shares are freed only when they expire: %s", error)
        if all([await self._sweep_own(kind) for kind in self.mark.kinds]):
            self.mark.remove()  # otherwise it stays, for a later run to sweep

    def status(self) -> dict[str, Any]:
        """Leases, waits and counts as plain data."""
        leases, waiting, idle = list(self.leases), self.gauges.waiting(), self.idle.by_kind()
        warm: Counter[str] = Counter()
        for identity, count in self.minimum.items():
            warm[identity[0].kind] += count
        leased, queued = Counter(x.spec.kind for x in leases), Counter(spec.kind for spec, _, _ in waiting)
        kinds = {
            kind: {
                "leased": leased[kind],
                "idle": idle[kind],
                "waiting": queued[kind],
                "warm_minimum": warm[kind],
                "failures": {what: n for (k, what), n in sorted(self.gauges.failures.items()) if k == kind},
            }
            for kind in sorted({*leased, *idle, *queued, *warm, *self.mark.kinds})
        }
        return {
            "kinds": kinds,
            "leases": [
                {
                    "kind": x.spec.kind,
                    "what": x.spec.target or x.spec.image,
                    "owner": x.owner,
                    "since": x.since,
                    "state": "lost" if x.lost else "held" if x.ready else "starting",
                }
                for x in sorted(leases, key=lambda x: x.since)
            ],
            "waiting": [{"kind": s.kind, "owner": owner, "since": since} for s, owner, since in waiting],
        }

    async def _healthy(self, provider: ResourceProvider, spec: ResourceSpec, instance: Any) -> bool:
        try:
            return await provider.health(instance)
        except asyncio.CancelledError:
            await self.stop(provider, spec, instance)
            raise
        except Exception as error:
            log.warning("the health check of %s failed: %s", label(spec), error, exc_info=_unexpected(error))
            return False

    async def _reset(self, provider: ResourceProvider, lease: HeldLease) -> bool:
        if lease.lost or self._closed:
            return False
        try:
            good = await within(self._reset_timeout, provider.reset(lease.instance))
        except Exception as error:
            self.gauges.count(lease.spec.kind, "reset")
            log.warning(
                "%s could not be reset and is replaced: %s", label(lease.spec), error, exc_info=_unexpected(error)
            )
            return False
        return good and not self._closed

    async def _stop_all(self, entries: list[tuple[Identity, Any]]) -> None:
        await asyncio.gather(*(self.stop(self.providers[i[0].kind], i[0], instance) for i, instance in entries))

    async def _sweep_own(self, kind: str) -> bool:
        """End what could not be stopped; whether nothing is left."""
        try:
            if left := await self.providers[kind].sweep(self.run_id):
                log.warning("%d of kind %s were left at the end, and have been ended", left, kind)
        except Exception as error:
            level = logging.WARNING if kind in self._started else logging.INFO  # why nothing started has been said
            log.log(level, "the sweep of kind %s failed: %s", kind, error, exc_info=_unexpected(error))
            return False
        return True


def _unexpected(error: Exception) -> bool:
    """Whether its traceback tells more than its text: it was not raised on purpose."""
    return not isinstance(error, AgentFlyError | TimeoutError)
