"""Sandboxed processes: no container engine, no root needed, as strong as this machine allows."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from agentfly_core.resources.handle import refuse_unsupported
from agentfly_core.resources.sandboxes import cgroups, interpreters, state
from agentfly_core.resources.sandboxes.io_thread import io_loop, on_io, settled
from agentfly_core.resources.sandboxes.plan import Limits, Plan
from agentfly_core.resources.sandboxes.running import LocalSandbox
from agentfly_core.resources.sandboxes.tiers import TIERS, Tier, probe
from agentfly_core.resources.sandboxes.uids import PrivateUid
from agentfly_core.types import Isolation, IsolationReport, ResourceError, ResourceSpec, UsageError
from agentfly_core.types.resources import check_limits

log = logging.getLogger("agentfly.resources")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a trial found to work.

    Attributes:
        python: for commands. private: whether each sandbox has a user id of its own. mountable: see ``Plan``.
        report: without the network.
        failures: (tier, reason) of the stronger ones that do not work.
    """

    tier: Tier
    python: str
    private: bool
    mountable: bool
    report: IsolationReport
    failures: tuple[tuple[str, str], ...]


class ProcessProvider:
    """Sandboxes as processes of this machine: bubblewrap, else Landlock with seccomp, else resource limits alone.

    Which of them is decided by running one and trying to get out of it, once, when it is first asked for. Limits that a
    spec does not name are these.

    Args:
        tier: use this one and no other: ``bubblewrap``, ``landlock+seccomp`` or ``rlimits``.
        memory: MiB. pids: processes and threads. cpu: cores. disk: MiB, see ``Limits``.
        starts: how many may be starting at once.
        reset_timeout: seconds that ending a sandbox's commands and wiping its files may take before it is replaced.
    """

    def __init__(
        self,
        *,
        tier: Literal["bubblewrap", "landlock+seccomp", "rlimits"] | None = None,
        memory: int = 1024,
        pids: int = 128,
        cpu: float = 1.0,
        disk: int = 256,
        starts: int = 8,
        reset_timeout: float = 20.0,
    ) -> None:
        if tier is not None and tier not in (names := [t.name for t in TIERS]):
            raise UsageError(f"resource 'process': unknown tier {tier!r}; known: {', '.join(names)}")
        self._tier = tier
        self._limits = Limits(memory, pids, cpu, disk)
        check_limits(None, starts=starts)
        self._starts = starts
        self._starting: asyncio.Semaphore | None = None
        self._reset_timeout = reset_timeout
        self._lock = threading.Lock()
        self._choice: Choice | None = None
        self._live: set[str] = set()

    @property
    def isolation(self) -> Isolation:
        """Of every sandbox that it starts. The first time this takes a moment: a sandbox is tried."""
        return self.report().level

    def report(self) -> IsolationReport:
        """What its sandboxes keep out and bound; of one with network the network is open.

        Raises:
            ResourceError: the tier that was asked for does not work here.
        """
        return self._chosen().report

    async def start(self, spec: ResourceSpec, *, run_id: str) -> LocalSandbox:
        """A new sandbox. Cancelling the call leaves nothing behind.

        Raises:
            ResourceError: it does not start, is weaker than the spec demands, or cannot give what the spec asks for.
        """
        refuse_unsupported(spec, "environment", "mounts", "cpu", "memory", "pids", "disk", "setup")
        choice = await asyncio.to_thread(self._chosen)
        if choice.report.level < spec.min_isolation:
            reasons = "; ".join(f"{tier}: {reason}" for tier, reason in choice.failures)
            raise ResourceError(
                f"isolation {spec.min_isolation.name} is demanded, but sandboxed processes here have only "
                f"{choice.report.level.name} ({choice.tier.name}). {reasons}"
            )
        return await on_io(self._start(choice, spec, run_id), dispose=self._stop)

    async def health(self, instance: LocalSandbox) -> bool:
        """Whether its supervisor answers to the host."""
        return not instance.broken

    async def reset(self, instance: LocalSandbox) -> bool:
        """End all its processes and wipe all that they wrote; False says that it must be replaced."""
        return await instance.clear(timeout=self._reset_timeout)

    async def stop(self, instance: LocalSandbox) -> None:
        """End it and everything it started; calling it twice does nothing."""
        await on_io(self._stop(instance))

    async def runs(self) -> frozenset[str]:
        """Runs of which sandboxes, or what they left, exist on this machine."""
        return await asyncio.to_thread(state.runs)

    async def sweep(self, run_id: str) -> int:
        """End what a crashed run left; how many sandboxes there were. Supervisors end by themselves with their host:
        this finds folders, control groups, and what is stuck."""
        return await asyncio.to_thread(state.sweep, run_id, live=frozenset(self._live))

    def _chosen(self) -> Choice:
        with self._lock:
            if self._choice is None:
                self._choice = asyncio.run_coroutine_threadsafe(self._choose(), io_loop()).result()
            return self._choice

    async def _choose(self) -> Choice:
        if sys.platform != "linux":
            raise ResourceError(f"sandboxed processes need Linux, this is {sys.platform}: use the kind 'docker'")
        failures: list[tuple[str, str]] = []
        for tier in TIERS:
            if self._tier not in (None, tier.name):
                continue
            reason = tier.absent() or await self._try(tier, failures)
            if isinstance(reason, Choice):
                log.info("sandboxed processes: %s %s", tier.name, failures or "")
                return reason
            failures.append((tier.name, reason))
        raise ResourceError("; ".join(f"{tier}: {reason}" for tier, reason in failures))

    async def _try(self, tier: Tier, failures: list[tuple[str, str]]) -> Choice | str:
        """A trial with one interpreter after another; the choice, or why none works."""
        reasons: list[str] = []
        root = os.getuid() == 0
        privately = (True,) if root and tier.needs_uid else (True, False) if root else (False,)
        mounting = (True, False) if root and tier.foldered else (False,)
        for private, python, mountable in itertools.product(privately, interpreters.candidates(), mounting):
            choice = Choice(tier, python, private, mountable and private, _NOTHING, tuple(failures))
            sandbox: LocalSandbox | None = None
            try:
                sandbox = await self._start(choice, ResourceSpec("process"), "trial")
                await probe(sandbox)
                return replace(choice, report=sandbox.report)
            except (ResourceError, OSError) as error:
                if str(error) not in reasons:
                    reasons.append(str(error))
            finally:
                if sandbox is not None:
                    await self._stop(sandbox)
        return "; ".join(reasons)

    async def _start(self, choice: Choice, spec: ResourceSpec, run_id: str) -> LocalSandbox:
        if self._starting is None:
            self._starting = asyncio.Semaphore(self._starts)
        async with self._starting:
            name = state.full_name(run_id, uuid.uuid4().hex)
            making = asyncio.ensure_future(asyncio.to_thread(self._make, choice, spec, name))
            try:
                await settled(making)
                await making.result().start()
            except BaseException:
                if making.exception() is None:
                    await self._stop(making.result())
                raise
            return making.result()

    def _make(self, choice: Choice, spec: ResourceSpec, name: str) -> LocalSandbox:
        limits = self._limits.of(spec)
        with ExitStack() as undo:
            uid = PrivateUid() if choice.private else None
            if uid is not None:
                undo.callback(uid.release)
            group = cgroups.ControlGroup(name, limits) if cgroups.available() else None
            if group is not None:
                undo.callback(group.remove)
            number = uid.number if uid is not None else None
            folder = state.make_folder(name, number)
            undo.callback(state.remove_folder, folder)
            plan = Plan(spec, limits, number, folder, group is not None, choice.mountable, choice.python)
            sandbox = LocalSandbox(
                spec, choice.tier.launch(plan), name, python=choice.python, folder=folder, uid=uid, group=group
            )
            undo.pop_all()
        self._live.add(name)
        return sandbox

    async def _stop(self, sandbox: LocalSandbox) -> None:
        try:
            await sandbox.stop()
        finally:
            self._live.discard(sandbox.name)  # what could not be ended is for the sweep


_NOTHING = IsolationReport(Isolation.NONE, "", "open", "open", "seen", "none")
