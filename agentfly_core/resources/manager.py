"""Leases over warm instances."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from agentfly_core.resources.housekeeper import Housekeeper
from agentfly_core.resources.instances import Instances
from agentfly_core.resources.lease import HeldLease, label
from agentfly_core.resources.sweeping import sweep_crashed, sweep_run
from agentfly_core.resources.waiting import finish
from agentfly_core.types import Coordinator, LeaseLost, ResourceError, ResourceProvider, ResourceSpec, Ticket

log = logging.getLogger("agentfly.resources")

POLL_SECONDS = 0.05
"""How often a drain looks whether the last lease has ended."""


class ResourceManager:
    """Hands out isolated instances within a coordinated capacity, warm ones where the whole spec is equal.

    Capacity counts leases and idle instances alike, those of every process that shares the coordinator. Idle ones
    that stand in somebody's way, here or in another process, are stopped, the longest idle first. Used from any event
    loop; renewals, health checks and refills go on in a thread of their own.

    Args:
        coordinator: counts capacity.
        providers: by the kind of spec they serve.
        run_id: marks what is started, so that a sweep finds leftovers.
        warm: spec -> idle instances that are started ahead and replaced when leased, as long as there is capacity
            that nobody waits for.
        max_idle: idle instances kept at most, over all specs.
        ttl: seconds after which the leases of a dead process are free again.
        renew_every: seconds between renewals, and between health checks of what is leased; a third of ``ttl`` if None.
        lease_limit: seconds that one lease may last; None sets no limit.
        reset_timeout: seconds that making an instance as new may take before it is replaced.
        status_file: rewritten while instances are leased or idle, for ``agentfly resources status``.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        providers: Mapping[str, ResourceProvider],
        *,
        run_id: str | None = None,
        warm: Mapping[ResourceSpec, int] | None = None,
        max_idle: int = 64,
        ttl: float = 60.0,
        renew_every: float | None = None,
        lease_limit: float | None = None,
        reset_timeout: float = 60.0,
        status_file: Path | None = None,
    ) -> None:
        self.run_id = run_id or uuid.uuid4().hex
        self._coordinator = coordinator
        self._ttl = ttl
        self._lease_limit = math.inf if lease_limit is None else lease_limit
        self._instances = Instances(
            coordinator, providers, self.run_id, ttl=ttl, max_idle=max_idle, reset_timeout=reset_timeout
        )
        self._gauges = self._instances.gauges
        self._housekeeper = Housekeeper(
            self._instances, coordinator, ttl, renew_every or ttl / 3, self._lease_limit, status_file, self.status
        )
        self._lock = threading.Lock()
        self._refusal = ""
        """Why nothing is leased any more."""
        for spec, count in (warm or {}).items():
            self.keep_warm(spec, count)

    @property
    def coordinator(self) -> Coordinator:
        """What counts capacity."""
        return self._coordinator

    def lease(self, spec: ResourceSpec, *, owner: str) -> _Leasing:
        """Wait in order for capacity, then hold an instance; it is reset, kept warm or replaced on exit.

        Raises:
            ResourceError: it cannot be started, its isolation is weaker than the spec demands, or the manager is
                closed.
        """
        return _Leasing(self, spec, owner)

    def keep_warm(self, spec: ResourceSpec, count: int) -> None:
        """Keep so many idle instances of a spec ready, starting now; 0 ends it.

        Raises:
            ResourceError: nobody serves the spec, or the idle maximum is smaller.
        """
        self._instances.set_minimum(spec, count)
        self._housekeeper.start()
        self._housekeeper.poke()

    def metrics(self) -> dict[str, float]:
        """Numbers since the last call, named ``resources/KIND/...``; see ``Gauges.report``."""
        return self._gauges.report()

    def status(self) -> dict[str, Any]:
        """What is leased, by whom, since when, and how much is warm and waiting; plain data."""
        return {
            "run": self.run_id,
            "host": platform.node(),
            "pid": os.getpid(),
            "updated": time.time(),
            "refusal": self._refusal,
            **self._instances.status(),
        }

    async def drain(self, grace: float) -> bool:
        """Lease nothing more, wait up to ``grace`` seconds for what is leased to come back, then close.

        Returns:
            whether everything came back.
        """
        with self._lock:
            self._refusal = self._refusal or "is being drained"
        until = time.monotonic() + grace
        while self._instances.leases and time.monotonic() < until:  # noqa: ASYNC110 - they end on other loops
            await asyncio.sleep(POLL_SECONDS)
        done = not self._instances.leases
        await self.close()
        return done

    async def close(self) -> None:
        """Stop every instance, leased ones too; whoever holds one loses it. Callable from any event loop."""
        with self._lock:
            self._refusal = "is closed"
        await finish(self._close())

    async def sweep(self, run_id: str | None = None) -> int:
        """End what a crashed run left behind, of every kind, or what all did; how many there were."""
        providers = self._instances.providers
        return await sweep_crashed(providers) if run_id is None else await sweep_run(providers, run_id)

    async def _close(self) -> None:
        await asyncio.to_thread(self._housekeeper.close)
        await self._instances.close()

    async def _begin(self, spec: ResourceSpec, owner: str) -> HeldLease:
        self._refuse(spec)
        provider = self._instances.provider(spec)
        if not self._housekeeper.started:
            await self._instances.register()
            self._housekeeper.start()
        self._housekeeper.first_use(spec.kind)
        lease = HeldLease(spec, owner)
        ticket = await self._wait(lease)
        try:
            lease.granted(ticket, self._ttl)
            self._instances.leases.add(lease)
            instance = await self._instances.take(provider, lease, lambda: self._refuse(spec))
            self._housekeeper.poke()
            if lease.lost or self._refusal:
                await self._instances.stop(provider, spec, instance)
                self._refuse(spec)
                raise LeaseLost(f"{owner}: the lease of {label(spec)} was lost while it was started: {lease.lost}")
            lease.started(instance, self._lease_limit)
        except BaseException:
            self._instances.leases.discard(lease)
            await finish(self._instances.release(lease.ticket))
            raise
        self._gauges.leased(spec.kind, 1)
        return lease

    async def _wait(self, lease: HeldLease) -> Ticket:
        """Its share of the capacity."""
        spec, began = lease.spec, time.monotonic()
        self._gauges.wait_began(lease, spec, lease.owner)
        try:
            return await self._coordinator.acquire(
                spec.kind,
                lease.owner,
                ttl=self._ttl,
                holder=self.run_id,
                reuse=self._instances.idle.count(lease.identity) > 0,
            )
        except LeaseLost:
            await self._instances.drop_idle()  # it may have used up idle shares
            raise
        finally:
            self._gauges.wait_ended(lease)
            self._gauges.took(spec.kind, "wait", time.monotonic() - began)

    async def _end(self, lease: HeldLease) -> None:
        lease.end()
        self._gauges.leased(lease.spec.kind, -1)
        await self._instances.give_back(lease, keep=not self._refusal)
        self._housekeeper.poke()

    def _refuse(self, spec: ResourceSpec) -> None:
        if self._refusal:
            raise ResourceError(f"{label(spec)}: the resource manager {self._refusal}")


class _Leasing(contextlib.AbstractAsyncContextManager[HeldLease]):
    """One lease, from the wait for it to its end."""

    def __init__(self, manager: ResourceManager, spec: ResourceSpec, owner: str) -> None:
        self._manager = manager
        self._spec = spec
        self._owner = owner
        self._lease: HeldLease | None = None

    async def __aenter__(self) -> HeldLease:
        self._lease = await self._manager._begin(self._spec, self._owner)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._lease is not None
        await finish(self._manager._end(self._lease))
