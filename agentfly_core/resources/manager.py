"""Leases over warm instances."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeAlias

from agentfly_core.resources.coordinator import TOTAL
from agentfly_core.types import (
    Coordinator,
    LeaseLost,
    ResourceError,
    ResourceProvider,
    ResourceSpec,
    Ticket,
    UnknownName,
)

log = logging.getLogger("agentfly.resources")

Identity: TypeAlias = tuple[ResourceSpec, str]


class HeldLease:
    """A resource held for a while. ``resource`` raises once it is lost or given back."""

    def __init__(self, spec: ResourceSpec, owner: str, ticket: Ticket, instance: Any) -> None:
        self.spec = spec
        self.owner = owner
        self.ticket = ticket
        self.instance = instance
        self.lost = ""
        self.ended = False

    @property
    def resource(self) -> Any:
        """The provider's handle.

        Raises:
            LeaseLost: the lease ran out, its instance died, or it was given back.
        """
        if self.lost or self.ended:
            raise LeaseLost(f"{self.owner}: the lease of {_label(self.spec)} is over: {self.lost or 'it was released'}")
        return self.instance


class ResourceManager:
    """Hands out isolated instances within a coordinated capacity, warm ones where the whole spec is equal.

    Capacity counts leases and idle instances alike: where an instance must be started and idle ones of other
    specs stand in its way, the one that has been idle longest is stopped. Used from any event loop.

    Args:
        coordinator: counts capacity.
        providers: by the kind of spec they serve.
        run_id: marks what is started, so that a sweep finds leftovers.
        warm: idle instances kept at most, over all specs.
        ttl: seconds after which a lease whose holder's loop died is free again; renewed three times as often.
        lease_limit: seconds that one lease may last; None sets no limit.
        reset_timeout: seconds that making an instance as new may take before it is replaced.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        providers: Mapping[str, ResourceProvider],
        *,
        run_id: str | None = None,
        warm: int = 64,
        ttl: float = 60.0,
        lease_limit: float | None = None,
        reset_timeout: float = 60.0,
    ) -> None:
        self.run_id = run_id or uuid.uuid4().hex
        self._coordinator = coordinator
        self._providers = dict(providers)
        self._warm = warm
        self._ttl = ttl
        self._lease_limit = lease_limit
        self._reset_timeout = reset_timeout
        self._lock = threading.Lock()
        self._idle: list[tuple[Identity, Any]] = []
        """Longest idle first."""
        self._leases: set[HeldLease] = set()
        self._closed = False

    @property
    def coordinator(self) -> Coordinator:
        """What counts capacity."""
        return self._coordinator

    @contextlib.asynccontextmanager
    async def lease(self, spec: ResourceSpec, *, owner: str) -> AsyncIterator[HeldLease]:
        """Wait in order for capacity, then hold an instance; it is reset, kept warm or replaced on exit.

        Raises:
            ResourceError: it cannot be started, its isolation is weaker than the spec demands, or the manager is
                closed.
        """
        provider = self._provider(spec)
        ticket = await self._coordinator.acquire(spec.kind, owner, ttl=self._ttl)
        try:
            instance = await self._take(provider, spec)
        except BaseException:
            await finish(self._coordinator.release(ticket))
            raise
        lease = HeldLease(spec, owner, ticket, instance)
        with self._lock:
            self._leases.add(lease)
        keeper = asyncio.ensure_future(self._keep(provider, lease))
        try:
            yield lease
        finally:
            lease.ended = True
            keeper.cancel()
            await finish(self._give_back(provider, lease))

    async def close(self) -> None:
        """Stop every instance, leased ones too; whoever holds one loses it. Callable from any event loop."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            leases = list(self._leases)
        for lease in leases:
            lease.lost = lease.lost or "the resource manager was closed"
        instances = [(spec, instance) for (spec, _), instance in idle]
        instances += [(lease.spec, lease.instance) for lease in leases]
        await asyncio.gather(*(self._stop(self._providers[spec.kind], spec, i) for spec, i in instances))

    async def sweep(self, run_id: str) -> int:
        """End what a crashed run left behind, of every kind; how many there were."""
        return sum([await provider.sweep(run_id) for provider in self._providers.values()])

    def _provider(self, spec: ResourceSpec) -> ResourceProvider:
        if spec.kind not in self._providers:
            raise UnknownName("resource kind", spec.kind, self._providers)
        provider = self._providers[spec.kind]
        if provider.isolation < spec.min_isolation:
            raise ResourceError(
                f"{_label(spec)} demands isolation {spec.min_isolation.name}, but {spec.kind!r} gives only "
                f"{provider.isolation.name}"
            )
        return provider

    async def _take(self, provider: ResourceProvider, spec: ResourceSpec) -> Any:
        """A healthy warm instance, or a new one."""
        while (instance := self._pop_idle(spec)) is not None:
            if await self._healthy(provider, spec, instance):
                return instance
            await self._stop(provider, spec, instance)
        await self._make_room(spec.kind)
        self._refuse_if_closed(spec)
        try:
            instance = await provider.start(spec, run_id=self.run_id)
        except (ResourceError, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ResourceError(f"{_label(spec)} cannot be started: {type(error).__name__}: {error}") from error
        if self._closed:
            await self._stop(provider, spec, instance)
            self._refuse_if_closed(spec)
        return instance

    async def _healthy(self, provider: ResourceProvider, spec: ResourceSpec, instance: Any) -> bool:
        try:
            return await provider.health(instance)
        except asyncio.CancelledError:
            await self._stop(provider, spec, instance)
            raise
        except Exception:
            log.warning("the health check of %s failed", _label(spec), exc_info=True)
            return False

    def _refuse_if_closed(self, spec: ResourceSpec) -> None:
        if self._closed:
            raise ResourceError(f"{_label(spec)}: the resource manager is closed")

    def _pop_idle(self, spec: ResourceSpec) -> Any | None:
        """The instance of an equal spec that was used last."""
        wanted = _identity(spec)
        with self._lock:
            self._refuse_if_closed(spec)
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == wanted:
                    return self._idle.pop(index)[1]
        return None

    async def _make_room(self, kind: str) -> None:
        """Stop idle instances that stand in the way of a new one of this kind, for which a ticket is held."""
        if not self._idle:
            return
        for row in await self._coordinator.status():
            if row.capacity is None or row.kind not in (kind, TOTAL):
                continue
            for spec, instance in self._evict(row.kind, row.capacity - row.granted):
                await self._stop(self._providers[spec.kind], spec, instance)

    def _evict(self, kind: str, room: int) -> list[tuple[ResourceSpec, Any]]:
        """Take out the longest idle of a kind until no more than ``room`` are left."""
        with self._lock:
            matching = [entry for entry in self._idle if kind in (entry[0][0].kind, TOTAL)]
            evicted = matching[: max(0, len(matching) - max(0, room))]
            self._idle = [entry for entry in self._idle if not any(entry is e for e in evicted)]
        return [(spec, instance) for (spec, _), instance in evicted]

    async def _keep(self, provider: ResourceProvider, lease: HeldLease) -> None:
        """Renew while it is held; what is lost is stopped at once, for its capacity is another's."""
        began = renewed = time.monotonic()
        limit = math.inf if self._lease_limit is None else self._lease_limit
        while not lease.lost:
            await asyncio.sleep(max(0.0, min(self._ttl / 3, began + limit - time.monotonic())))
            if time.monotonic() - began >= limit:
                lease.lost = f"it lasted {limit} s, the limit"
                break
            try:
                lease.ticket = await self._coordinator.renew(lease.ticket, ttl=self._ttl)
                renewed = time.monotonic()
                if not await asyncio.wait_for(provider.health(lease.instance), self._ttl / 3):
                    lease.lost = "its instance died"
            except LeaseLost as error:
                lease.lost = str(error)
            except Exception as error:
                log.warning("the lease of %s could not be renewed; trying again", _label(lease.spec), exc_info=True)
                if time.monotonic() - renewed >= self._ttl:
                    lease.lost = f"it could not be renewed for {self._ttl} s: {error}"
        await self._stop(provider, lease.spec, lease.instance)

    async def _give_back(self, provider: ResourceProvider, lease: HeldLease) -> None:
        """Keep the instance warm if it can be made as new, stop it otherwise; then free its capacity."""
        try:
            if not await self._store(provider, lease):
                await self._stop(provider, lease.spec, lease.instance)
        finally:
            with self._lock:
                self._leases.discard(lease)
            await self._coordinator.release(lease.ticket)

    async def _store(self, provider: ResourceProvider, lease: HeldLease) -> bool:
        if lease.lost or self._closed or not self._warm:
            return False
        try:
            if not await asyncio.wait_for(provider.reset(lease.instance), self._reset_timeout):
                return False
        except Exception:
            log.warning("%s could not be reset and is replaced", _label(lease.spec), exc_info=True)
            return False
        with self._lock:
            if self._closed or lease.lost:
                return False
            self._idle.append((_identity(lease.spec), lease.instance))
        for spec, instance in self._evict(TOTAL, self._warm):
            await self._stop(self._providers[spec.kind], spec, instance)
        return True

    async def _stop(self, provider: ResourceProvider, spec: ResourceSpec, instance: Any) -> None:
        async def stop() -> None:
            try:
                await provider.stop(instance)
            except Exception:
                log.warning("stopping %s failed", _label(spec), exc_info=True)

        await finish(stop())


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end even if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def _identity(spec: ResourceSpec) -> Identity:
    """Equal only for the same values of the same types: 1, 1.0 and True are different options."""
    return spec, repr(spec.options)


def _label(spec: ResourceSpec) -> str:
    return f"{spec.kind} {spec.target or spec.image!r}".rstrip()
