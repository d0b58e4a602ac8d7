"""Chains of one task, and whether they teach anything."""

from __future__ import annotations

import asyncio

from agentfly_core.learners.collate import is_scored
from agentfly_core.types import Trajectory

KEEP, DROP = 0.5, 0.0
"""Scores that OpenRLHF's filter, with the range (0, 1), keeps or replaces."""


class Group:
    """The chains of one order, as they begin and end. Used from the actor's loop.

    Args:
        size: how many there will be.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._begun = 0
        self._ended: list[Trajectory] = []
        self._all = asyncio.Event()

    def next_index(self) -> int:
        """The index of the next chain."""
        index, self._begun = self._begun, self._begun + 1
        return index

    def end(self, trajectory: Trajectory) -> bool:
        """Take a finished chain; True if it was the last."""
        self._ended.append(trajectory)
        if len(self._ended) == self._size:
            self._all.set()
        return self._all.is_set()

    async def verdict(self) -> float:
        """Once all have ended: ``DROP`` if no baseline can come of them, ``KEEP`` otherwise."""
        await self._all.wait()
        return DROP if is_flat(self._ended) else KEEP


def is_flat(chains: list[Trajectory]) -> bool:
    """Whether fewer than two chains are scored, or all scored ones have the same reward."""
    rewards = [chain.reward for chain in chains if is_scored(chain)]
    return len(rewards) < 2 or max(rewards) == min(rewards)
