"""The run's named Ray actor: through it, processes on all nodes tell the driver what happens and share capacity."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from agentfly_core.recipes.resources import capacity_of
from agentfly_core.recipes.schema import Recipe
from agentfly_core.resources import InProcessCoordinator
from agentfly_learner_openrlhf.job import Job, current_job

CAPACITY = "capacity"
"""Ray's concurrency group of the calls that may wait long."""

WAITING = 100_000
"""Chains that may wait for capacity at once. Ray queues calls beyond a limit, releases among them."""


@dataclass(frozen=True)
class Event:
    """Something that the driver is to know.

    Attributes:
        kind: ``batch`` (a batch of chains is there), ``metrics`` (numbers of a step), ``saved`` (a checkpoint).
        step: the training step it belongs to.
    """

    kind: Literal["batch", "metrics", "saved"]
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Hub:
    """Its methods run on one event loop, in a Ray actor of their own.

    Args:
        capacity, total: of the coordinator.
    """

    def __init__(self, capacity: Mapping[str, int], total: int | None = None) -> None:
        self.coordinator = InProcessCoordinator(capacity, total)
        self._events: list[Event] = []
        self._news = asyncio.Event()
        self._stop = self._last_saved = False
        self._last_batch: int | None = None

    async def tell(self, event: Event) -> None:
        """Hand an event to the driver; returns before it has been looked at."""
        self._events.append(event)
        self._news.set()

    async def events(self, patience: float) -> list[Event]:
        """What has happened since the last call, waiting up to ``patience`` seconds for something to happen."""
        if not self._events:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), patience)
        self._news.clear()
        events, self._events = self._events, []
        return events

    async def request_stop(self) -> None:
        """Ask the run to end after the step in hand."""
        self._stop = True

    async def stop_requested(self) -> bool:
        """Whether it was asked to end."""
        return self._stop

    async def no_batch_after(self, step: int) -> None:
        """The data ends with the batch of this step."""
        self._last_batch = step

    async def ends_with(self, step: int) -> bool:
        """Whether no step follows this one: the run was asked to end, or the data ended."""
        return self._stop or self._last_batch == step

    async def end_batches(self) -> None:
        """The last step is saved: no further batch is wanted."""
        self._last_saved = True

    async def batches_ended(self) -> bool:
        """Whether generating goes no further."""
        return self._last_saved

    async def coordinate(self, method: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Call the coordinator."""
        return await getattr(self.coordinator, method)(*arguments, **options)


def name_of(job: Job) -> str:
    """Of the run's actor."""
    return f"agentfly-{job.id}"


def limits_of(recipe: Recipe) -> tuple[dict[str, int], int | None]:
    """Capacity of each kind, and in all, that the run's coordinator keeps to."""
    return capacity_of(recipe), recipe.resources.total


def start_hub(name: str, capacity: Mapping[str, int], total: int | None = None) -> Any:
    """Start it; it ends with the driver. See ``name_of``."""
    import ray

    actor = ray.remote(num_cpus=0, concurrency_groups={CAPACITY: WAITING})(Hub)
    return actor.options(name=name, namespace=name).remote(dict(capacity), total)


@cache
def hub() -> Any:
    """The handle of this process's run."""
    import ray

    name = name_of(current_job())
    return ray.get_actor(name, namespace=name)


def tell(event: Event) -> None:
    """Hand an event to the driver; it has arrived when this returns."""
    import ray

    ray.get(hub().tell.remote(event))
