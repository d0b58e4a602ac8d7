"""One chain, from its environment's lease to its score."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from agentfly_core.call_loop import on_call_loop
from agentfly_core.rollout.clock import Clock, Deadline
from agentfly_core.rollout.environments import RecordingEnvironment
from agentfly_core.rollout.record import Record
from agentfly_core.rollout.scope import contained, describe
from agentfly_core.rollout.scoring import score, unscored
from agentfly_core.rollout.setup import Job, Setup
from agentfly_core.rollout.turns import ChainEnded, Turns
from agentfly_core.types import ChainStatus, ResourceError, ResourceManager, ResourceSpec, Trajectory

logger = logging.getLogger(__name__)

RELEASE_SECONDS = 30.0
"""How long what tools entered into the chain's scope may take to be left."""


class Chain:
    """Plays and scores one chain in one asyncio task, and gives back what it held, whatever ends it."""

    def __init__(self, setup: Setup, job: Job) -> None:
        self._setup = setup
        self._job = job
        self._record = Record(job)
        self._scope = contextlib.AsyncExitStack()
        self._task: asyncio.Task[Trajectory] | None = None
        self._ending: tuple[ChainStatus, str] | None = None
        self._releasing = False

    def start(self) -> asyncio.Task[Trajectory]:
        """Begin; the task returns the trajectory and never raises on purpose."""
        self._task = asyncio.ensure_future(self._run())
        return self._task

    def end(self, status: ChainStatus, reason: str) -> None:
        """End it early: at once, unless it is being released already. Only the first reason counts."""
        if self._task is not None and self._ending is None and not self._releasing:
            self._ending = (status, reason)
            self._task.cancel()

    async def _run(self) -> Trajectory:
        started = time.perf_counter()
        job = self._job
        self._setup.notify(
            "rollout_started", task=job.task, chain_index=job.chain_index, group=job.group, split=job.split
        )
        trajectory: Trajectory | None = None
        leased = False
        try:
            async with self._environment() as environment:
                leased = True
                try:
                    trajectory = await self._play(environment)
                    trajectory = await self._score(trajectory, environment)
                finally:
                    self._releasing = True
                    await self._leave_scope()
        except asyncio.CancelledError:
            trajectory = self._unplayed(trajectory, *self._early_end())
        except Exception as error:
            if not leased:
                trajectory = self._unplayed(None, ChainStatus.ENVIRONMENT_ERROR, describe(error))
            elif trajectory is not None:
                logger.warning("chain %s: its environment could not be given back", job.name, exc_info=True)
            else:
                raise
        assert trajectory is not None
        trajectory = replace(trajectory, seconds=time.perf_counter() - started)
        self._setup.notify("trajectory_finished", trajectory=trajectory)
        return trajectory

    def _environment(self) -> AbstractAsyncContextManager[RecordingEnvironment | None]:
        spec, resources = self._setup.environment, self._setup.resources
        if spec is None or resources is None:
            return contextlib.nullcontext()
        return _leased(resources, spec, self._job.name)

    async def _play(self, environment: RecordingEnvironment | None) -> Trajectory:
        """All turns. The clock starts here: waiting for an environment is no fault of the chain."""
        clock, seconds = Clock(self._setup.clock.now), self._setup.chain_timeout
        turns = Turns(self._setup, self._record, clock, self._scope, environment)
        late = (ChainStatus.TIMEOUT, f"the chain took longer than {seconds:g} s")
        deadline = Deadline(clock, seconds, lambda: self.end(*late))
        error: str | None = None
        try:
            status = await turns.play()
        except asyncio.CancelledError:
            status, error = self._early_end()
        except ChainEnded as ended:
            status, error = ended.status, ended.reason
        except ResourceError as raised:  # of a tool: of no use to say where in our code
            status, error = ChainStatus.ENVIRONMENT_ERROR, str(raised)
        except (Exception, SystemExit, KeyboardInterrupt) as raised:
            status, error = ChainStatus.ABORTED, describe(raised)
        finally:
            deadline.disarm()
        broken = None if environment is None or self._ending is not None else environment.error
        if status in (ChainStatus.ABORTED, ChainStatus.ENVIRONMENT_ERROR) and broken is not None:
            status, error = ChainStatus.ENVIRONMENT_ERROR, broken
        return self._record.trajectory(status, error)

    async def _score(self, trajectory: Trajectory, environment: RecordingEnvironment | None) -> Trajectory:
        turn = len(trajectory.turns)
        context = self._setup.context(self._job, turn, self._record.state, self._scope, environment)
        return await score(
            trajectory,
            self._setup.reward,
            context,
            in_environment=environment is not None,
            timeout=self._setup.reward_timeout,
        )

    async def _leave_scope(self) -> None:
        if not getattr(self._scope, "_exit_callbacks", True):
            return  # nothing was entered: spare most chains a task
        try:
            leaving = on_call_loop(self._scope.aclose)  # where tools entered it
            await contained(leaving, what=f"chain {self._job.name}: its scope", timeout=RELEASE_SECONDS)
        except Exception:
            logger.warning("chain %s: what its tools held was not given back cleanly", self._job.name, exc_info=True)

    def _early_end(self) -> tuple[ChainStatus, str]:
        """How a cancelled chain ended. Nobody but us may have cancelled it: a backend that did has given up."""
        if self._task is not None and hasattr(self._task, "uncancel"):  # Python 3.11
            self._task.uncancel()
        return self._ending or (ChainStatus.ABORTED, "something that the chain waited for was cancelled")

    def _unplayed(self, trajectory: Trajectory | None, status: ChainStatus, reason: str) -> Trajectory:
        """The trajectory of a chain that ended before or after its turns."""
        if trajectory is None:
            return unscored(self._record.trajectory(status, reason), reason)
        return unscored(replace(trajectory, error=reason), reason)


@contextlib.asynccontextmanager
async def _leased(resources: ResourceManager, spec: ResourceSpec, owner: str) -> AsyncIterator[RecordingEnvironment]:
    async with resources.lease(spec, owner=owner) as lease:
        yield RecordingEnvironment(lease.resource)
