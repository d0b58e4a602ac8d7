"""Which chains run: first come, first served, a bounded number at once. All of it on the engine's loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from agentfly_core.rollout.chain import Chain
from agentfly_core.rollout.environments import capacity_for
from agentfly_core.rollout.sampling import Sampler
from agentfly_core.rollout.scope import describe
from agentfly_core.rollout.scoring import unscored
from agentfly_core.rollout.setup import Job, Setup
from agentfly_core.types import ChainStatus, Trajectory

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 60.0
"""How long aborted chains may take to give back what they hold before closing goes on without them."""


class Scheduler:
    """Starts chains, counts them, and settles each exactly once.

    Args:
        settle: told of every trajectory.
        fixed: chains run in waves. Then no more of them run than there are environments: one that waited for an
            environment which others hold until the next wave would hold up that wave.
    """

    def __init__(
        self,
        setup: Setup,
        sampler: Sampler,
        max_concurrency: int,
        settle: Callable[[Job, Trajectory], None],
        *,
        fixed: bool,
    ) -> None:
        self._setup = setup
        self._sampler = sampler
        self._max = max_concurrency
        self._settle = settle
        self._measuring: asyncio.Task[None] | None = None
        self._ready = not (fixed and setup.environment is not None)
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, tuple[Chain, asyncio.Task[Trajectory]]] = {}

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue these, and start what there is room for."""
        self._waiting.extend(jobs)
        if not self._ready and self._measuring is None:
            self._measuring = asyncio.ensure_future(self._limit_to_capacity())
        self._admit()

    def cancel(self, job: Job) -> None:
        """End a chain whose future was cancelled."""
        if job in self._running:
            self._running[job][0].end(ChainStatus.ABORTED, "it was cancelled")
        else:
            self._settle(job, aborted(job, "it was cancelled"))

    async def shut_down(self, reason: str) -> None:
        """Abort every chain, and wait until all have given back what they held."""
        while self._waiting:
            job = self._waiting.popleft()
            self._settle(job, aborted(job, reason))
        tasks = [task for _, task in self._running.values()]
        for chain, _ in self._running.values():
            chain.end(ChainStatus.ABORTED, reason)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            if late:
                logger.warning("%d chains did not end within %g s and are left behind", len(late), CLOSE_SECONDS)

    def _admit(self) -> None:
        while self._ready and self._waiting and len(self._running) < self._max:
            job = self._waiting.popleft()
            if job.future.done():
                continue  # cancelled, or given up
            chain = Chain(self._setup, job)
            task = chain.start()
            self._running[job] = (chain, task)
            task.add_done_callback(lambda task, job=job: self._finished(job, task))  # type: ignore[misc]
        self._sampler.running = len(self._running)
        self._sampler.look()

    def _finished(self, job: Job, task: asyncio.Task[Trajectory]) -> None:
        del self._running[job]
        self._settle(job, _result(job, task))
        self._admit()

    async def _limit_to_capacity(self) -> None:
        assert self._setup.environment is not None
        try:
            capacity = await capacity_for(self._setup.environment, self._setup.resources)
            self._max = min(self._max, capacity or self._max)
        finally:
            self._ready = True
            self._admit()


def _result(job: Job, task: asyncio.Task[Trajectory]) -> Trajectory:
    """The task's trajectory. A task without one is a bug, which must neither be hidden nor hang whoever waits."""
    if task.cancelled():
        return aborted(job, "its task was cancelled")
    error = task.exception()
    if error is None:
        return task.result()
    logger.error("chain %s failed", job.name, exc_info=error)
    return aborted(job, describe(error))


def aborted(job: Job, reason: str) -> Trajectory:
    """The trajectory of a chain of which nothing is known but why."""
    lost = Trajectory(job.task, job.chain_index, job.group, job.split, ChainStatus.ABORTED, error=reason)
    return unscored(lost, reason)
