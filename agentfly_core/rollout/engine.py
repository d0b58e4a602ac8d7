"""The rollout engine: many chains at once on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from types import TracebackType
from typing import Any

from agentfly_core.rollout.agents import check_agent
from agentfly_core.rollout.checking import check_limits, tools_by_name
from agentfly_core.rollout.clock import Clock
from agentfly_core.rollout.loop import LoopThread
from agentfly_core.rollout.prompts import LastPrompt
from agentfly_core.rollout.sampling import sampler_for
from agentfly_core.rollout.scheduler import Scheduler, aborted
from agentfly_core.rollout.setup import Job, Setup, list_schemas
from agentfly_core.tools.base import DEFAULT_MAX_OUTPUT_CHARS
from agentfly_core.types import (
    Agent,
    ChatTemplate,
    GenerationBackend,
    GroupId,
    ResourceManager,
    ResourceSpec,
    Reward,
    SamplingParams,
    Split,
    Task,
    Tool,
    Trajectory,
    UsageError,
)

logger = logging.getLogger(__name__)

DEFAULT_SAMPLING = SamplingParams()


class Engine:
    """Implements ``types.RolloutEngine``. Long-lived; callable from any thread. The caller owns backend and resources.

    Args:
        sampling: of every turn; ``max_tokens`` limits one turn. Empty ``stop_token_ids`` are the template's; the
            agent's stop texts join ``stop``; a ``seed`` takes the place of the engine's. A turn's seed is derived from
            it, the group, task, chain and turn.
        max_turns: turns a chain may take.
        max_tokens: longest segment, prompt included; None leaves the backend's ``max_model_len``.
        environment: what each chain leases from ``resources``.
        max_concurrency: chains at once; the others wait in the order of their submission.
        chain_timeout: seconds a chain's turns may take, waiting for an environment and pauses not counted.
        reward_timeout: seconds a reward may take.
        tool_timeout: seconds a tool call may take where the tool sets no limit of its own.
        max_observation_chars: a longer observation of the environment loses its middle, as a tool's output does.
        deterministic: sample in waves of all running chains. ``run`` then yields in the order of submission. Chains
            given to ``submit`` between ``pause`` and ``resume`` begin in one wave.
        notify: observers' hooks, called as ``notify(name, **arguments)``.

    Raises:
        UsageError: the parts do not fit together.
    """

    def __init__(
        self,
        *,
        agent: Agent,
        template: ChatTemplate,
        backend: GenerationBackend,
        tools: Sequence[Tool] = (),
        reward: Reward | None = None,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        max_turns: int = 8,
        max_tokens: int | None = None,
        environment: ResourceSpec | None = None,
        resources: ResourceManager | None = None,
        max_concurrency: int = 256,
        chain_timeout: float = 600.0,
        reward_timeout: float = 120.0,
        tool_timeout: float | None = None,
        max_observation_chars: int = DEFAULT_MAX_OUTPUT_CHARS,
        seed: int = 0,
        deterministic: bool = False,
        notify: Callable[..., None] | None = None,
    ) -> None:
        check_limits(
            max_turns=max_turns,
            max_tokens=max_tokens,
            max_concurrency=max_concurrency,
            chain_timeout=chain_timeout,
            reward_timeout=reward_timeout,
            tool_timeout=tool_timeout,
            max_observation_chars=max_observation_chars,
        )
        if environment is not None and resources is None:
            raise UsageError("an engine with an environment needs `resources` to lease it from")
        by_name = tools_by_name(tools)
        check_agent(agent, template.history, by_name if environment is None else None)
        self._clock = Clock()
        self._sampler = sampler_for(backend, self._clock, deterministic=deterministic)
        self._stop_token_ids = template.stop_token_ids
        self._stop_texts: tuple[str, ...] = tuple(getattr(agent, "stop_texts", ()))
        self._sampling = self._complete(sampling)
        self._deterministic = deterministic
        self._observe = notify
        lengths = [n for n in (max_tokens, backend.max_model_len) if n is not None]
        setup = Setup(
            agent=agent,
            template=template,
            generate=self._sampler.generate,
            tools=by_name,
            schemas=list_schemas(agent, by_name.values()),
            reward=reward,
            max_turns=max_turns,
            limit=min(lengths, default=None),
            environment=environment,
            resources=resources,
            chain_timeout=chain_timeout,
            reward_timeout=reward_timeout,
            tool_timeout=tool_timeout,
            max_observation_chars=max_observation_chars,
            seed=seed,
            clock=self._clock,
            notify=self._notify,
            last_prompt=LastPrompt(),
        )
        self._lock = threading.Lock()
        self._open: set[Job] = set()
        self._submitted = 0
        self._over = ""
        self._scheduler = Scheduler(setup, self._sampler, max_concurrency, self._settle, fixed=deterministic)
        self._thread = LoopThread("agentfly-rollout", self._ended)

    def submit(
        self,
        task: Task,
        chain_index: int,
        group: GroupId,
        *,
        sampling: SamplingParams | None = None,
        split: Split = "train",
    ) -> Future[Trajectory]:
        """Start one chain, or queue it behind those before it.

        The future never raises but ``CancelledError``: every failure is a status of its trajectory. Cancelling it
        ends the chain and releases what it holds.

        Raises:
            UsageError: the engine is closed.
        """
        return self._submit([(task, chain_index, group)], sampling, split)[0]

    def run(
        self,
        tasks: Iterable[Task],
        *,
        chains: int = 1,
        sampling: SamplingParams | None = None,
        split: Split = "train",
        label: str = "",
    ) -> Iterator[Trajectory]:
        """Run ``chains`` chains for each task and yield trajectories as they finish.

        Nothing starts before the first is asked for; then all of ``tasks`` is read. A task that occurs twice has one
        group with twice the chains. Leaving the iterator early (an exception, Ctrl-C, ``close``) cancels what is left.

        Args:
            label: the groups are named ``label/task.id``, or after the task alone.

        Raises:
            UsageError: the engine is closed.
        """
        if chains < 1:
            raise UsageError(f"chains must be at least 1, got {chains}")
        seen: Counter[str] = Counter()
        wanted: list[tuple[Task, int, GroupId]] = []
        for task in tasks:
            group = f"{label}/{task.id}" if label else task.id
            wanted += [(task, seen[task.id] + index, group) for index in range(chains)]
            seen[task.id] += chains
        order = deque(self._submit(wanted, sampling, split))
        del wanted
        left = set(order)
        finished: queue.SimpleQueue[Future[Trajectory]] = queue.SimpleQueue()
        if not self._deterministic:
            while order:
                order.popleft().add_done_callback(finished.put)
        try:
            while left:  # what was yielded is kept nowhere: a long run does not hold all its trajectories
                future = order.popleft() if self._deterministic else finished.get()
                trajectory = future.result()
                left.remove(future)
                del future
                yield trajectory
        finally:
            for future in left:
                future.cancel()

    def pause(self) -> None:
        """Start no new generation until ``resume``; the time in between counts against no chain's deadline.

        Generations and tool calls that are running go on.
        """
        self._clock.pause()

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._clock.resume()
        with contextlib.suppress(RuntimeError):  # closed: nobody is left to wake
            self._thread.soon(self._sampler.look)

    def close(self) -> None:
        """Abort what still runs, release everything, end the thread. Twice does nothing."""
        if self._thread.is_current:
            raise UsageError(
                "an engine cannot be closed from its own loop (an observer, a tool or a future's callback)"
            )
        with self._lock:
            first, self._over = not self._over, self._over or "the engine is closed"
        if first:
            self._thread.wait_for(self._scheduler.shut_down("the engine was closed"))
            self._thread.stop()
        else:
            self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(
        self, wanted: Sequence[tuple[Task, int, GroupId]], sampling: SamplingParams | None, split: Split
    ) -> list[Future[Trajectory]]:
        """Queue these chains at once, so that none of them begins before the last is known."""
        params = self._sampling if sampling is None else self._complete(sampling)
        with self._lock:
            if self._over:
                raise UsageError(f"{self._over}: it takes no more chains")
            first, self._submitted = self._submitted, self._submitted + len(wanted)
            jobs = [
                Job(task, index, group, split, params, first + n, Future())
                for n, (task, index, group) in enumerate(wanted)
            ]
            self._open.update(jobs)
            self._thread.soon(self._scheduler.add, jobs)
        for job in jobs:
            job.future.add_done_callback(lambda future, job=job: self._done(job))  # type: ignore[misc]
        return [job.future for job in jobs]

    def _done(self, job: Job) -> None:
        """A future was resolved, or cancelled by its holder: then the chain is ended."""
        if job.future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the chain with it
                self._thread.soon(self._scheduler.cancel, job)

    def _settle(self, job: Job, trajectory: Trajectory) -> None:
        """Resolve the job's future, or tell who waits for it that it is cancelled and everything released."""
        with self._lock:
            if job not in self._open:
                return
            self._open.remove(job)
        try:
            job.future.set_result(trajectory)
        except InvalidStateError:
            job.future.set_running_or_notify_cancel()

    def _ended(self, error: BaseException | None) -> None:
        """The loop is over. Whatever is still open was left behind by a bug, and must not hang whoever waits."""
        with self._lock:
            if error is not None:
                self._over = f"the engine's event loop died ({type(error).__name__}: {error})"
            left, reason = list(self._open), self._over
        for job in left:
            self._settle(job, aborted(job, reason))

    def _complete(self, sampling: SamplingParams) -> SamplingParams:
        """With the template's stop tokens, if it has none of its own, and the agent's stop texts."""
        more = tuple(text for text in self._stop_texts if text not in sampling.stop)
        ids = sampling.stop_token_ids or self._stop_token_ids
        return replace(sampling, stop_token_ids=ids, stop=(*sampling.stop, *more))

    def _notify(self, hook: str, **arguments: Any) -> None:
        if self._observe is None:
            return
        try:
            self._observe(hook, **arguments)
        except Exception:
            self._observe = None
            logger.exception("notifying observers of %s failed; they are told no more", hook)
