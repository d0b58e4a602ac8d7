"""A base for small text worlds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from agentfly_core.types import Observation, StepResult, Task, Tool


class TextEnvironment(ABC):
    """An ``Environment`` from two plain methods, ``begin`` and ``act``.

    They run on the engine's event loop: they should take a millisecond, not a second. A slow or blocking world
    belongs into a worker (``environment: {isolation: worker}``), where it may take as long as it likes.
    """

    @abstractmethod
    def begin(self, task: Task, seed: int) -> str:
        """Set the world up for a task and describe it; the same task and seed begin the same episode."""

    @abstractmethod
    def act(self, action: str) -> StepResult:
        """Act. An action that the world does not understand is an observation, not an exception."""

    @staticmethod
    def tools() -> Sequence[Tool]:
        """Tools that act in this world (``ActionTool``); none for a world of raw text actions."""
        return ()

    _over: StepResult | None = None
    """How the episode ended, once it has."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task."""
        self._over = None
        return Observation(self.begin(task, seed))

    async def step(self, action: str) -> StepResult:
        """Act; after the end of the episode nothing happens any more."""
        if self._over is not None:
            return replace(self._over, observation="The episode is over.", reward=0.0)
        result = self.act(action)
        if isinstance(result, StepResult) and result.done:
            self._over = result
        return result

    async def close(self) -> None:  # noqa: B027  (a default, not a gap)
        """Nothing to free."""
