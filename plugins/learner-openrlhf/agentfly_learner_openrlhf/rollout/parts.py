"""Trajectories on their way to the run folder: each rollout actor writes files of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentfly_core.runs import TrajectoryWriter
from agentfly_core.types import Trajectory


class TrajectoryParts:
    """Collects the trajectories of the chains of a rollout actor and writes them whenever none of them runs.

    So all chains of a batch are on disk before the trainer goes on with it. Used from the actor's loop.

    Args:
        folder: the run's trajectories.
        part: names this actor's files.
    """

    def __init__(self, folder: Path, part: str) -> None:
        self._writer = TrajectoryWriter(folder, part)
        self._steps: set[int] = set()
        self._running = 0
        self._lock = asyncio.Lock()

    def begin(self) -> None:
        """A chain begins."""
        self._running += 1

    async def end(self, step: int, trajectory: Trajectory | None) -> None:
        """A chain ended; None if without a trajectory to keep. The last one waits until all are written."""
        self._running -= 1
        if trajectory is not None:
            self._writer.append(step, trajectory)
            self._steps.add(step)
        if self._running == 0:
            async with self._lock:
                steps, self._steps = sorted(self._steps), set()
                await asyncio.to_thread(self._flush, steps)

    def _flush(self, steps: list[int]) -> None:
        for step in steps:
            self._writer.flush(step)
