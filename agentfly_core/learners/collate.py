"""Trajectories to tensors: one row a segment, ids exactly as they went through the backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentfly_core.types import Segment, TrainBatch, Trajectory, UsageError


@dataclass(slots=True)
class Collated:
    """B rows of N chains, on the CPU.

    Attributes:
        token_ids: (B, T) int64, padded at the right with 0.
        lengths: (B,) tokens of each row.
        batch: the same rows as algorithms see them. Statistics of rewards are computed in float64.
    """

    token_ids: Tensor
    lengths: Tensor
    batch: TrainBatch

    def rows_of_chains(self) -> list[list[int]]:
        """For each chain its rows with a token to train on, in order; [] where there is none."""
        rows: list[list[int]] = [[] for _ in range(self.batch.rewards.numel())]
        trained = self.batch.mask.any(dim=1).tolist()
        for row, chain in enumerate(self.batch.chain.tolist()):
            if trained[row]:
                rows[chain].append(row)
        return rows


def collate(trajectories: Sequence[Trajectory]) -> Collated:
    """The update batch of these chains, in this order.

    A chain without a finite score is not scored, whatever it says of itself: its mask is empty.

    Raises:
        UsageError: a segment carries images.
    """
    scored = [is_scored(t) for t in trajectories]
    rows = [(i, s) for i, t in enumerate(trajectories) for s in t.segments]
    if any(segment.images for _, segment in rows):
        raise UsageError("this learner trains on text only, but a chain's segment carries images")
    width = max((len(s.token_ids) for _, s in rows), default=1)
    names = sorted({name for t in trajectories for name in t.components})
    groups = {group: number for number, group in enumerate(dict.fromkeys(t.group for t in trajectories))}
    batch = TrainBatch(
        mask=_stack([[m and scored[i] for m in s.action_mask[1:]] for i, s in rows], width - 1, torch.bool, False),
        chain=torch.tensor([i for i, _ in rows], dtype=torch.int64),
        turn_ids=_stack([_turn_ids(s) for _, s in rows], width - 1, torch.int64, -1),
        rewards=torch.tensor([t.reward for t in trajectories], dtype=torch.float64),
        scored=torch.tensor(scored, dtype=torch.bool),
        group=torch.tensor([groups[t.group] for t in trajectories], dtype=torch.int64),
        turn_rewards=tuple(turn_rewards(t) for t in trajectories),
        rollout_logp=_stack([s.logprobs[1:] for _, s in rows], width - 1, torch.float32, 0.0),
        components={
            n: torch.tensor([t.components.get(n, math.nan) for t in trajectories], dtype=torch.float64) for n in names
        },
        anchors=_anchors(trajectories),
    )
    lengths = torch.tensor([len(s.token_ids) for _, s in rows], dtype=torch.int64)
    return Collated(_stack([s.token_ids for _, s in rows], width, torch.int64, 0), lengths, batch)


def is_scored(trajectory: Trajectory) -> bool:
    """Whether a chain takes part in baselines and updates: scored, and every number of its score finite."""
    numbers = (trajectory.reward, *trajectory.turn_rewards)
    return trajectory.scored and all(map(math.isfinite, numbers))


def turn_rewards(trajectory: Trajectory) -> tuple[float, ...]:
    """One number a turn; the score on the last turn where the reward gave none, zeros where there is no score."""
    turns = len(trajectory.turns)
    if not is_scored(trajectory):
        return (0.0,) * turns
    if len(trajectory.turn_rewards) == turns:
        return trajectory.turn_rewards
    return (*(0.0,) * (turns - 1), trajectory.reward)[-turns:] if turns else ()


def _turn_ids(segment: Segment) -> list[int]:
    turns = [-1] * len(segment.token_ids)
    for span in segment.spans:
        turns[span.start : span.end] = [span.turn] * (span.end - span.start)
    return turns[1:]


def _anchors(trajectories: Sequence[Trajectory]) -> tuple[tuple[str | None, ...], ...] | None:
    anchors = tuple(tuple(turn.anchor for turn in t.turns) for t in trajectories)
    return anchors if any(a is not None for row in anchors for a in row) else None


def _stack(rows: Sequence[Sequence[float]], width: int, dtype: torch.dtype, fill: float) -> Tensor:
    """Ragged rows to (B, width), filled up at the right."""
    result = torch.full((len(rows), width), fill, dtype=dtype)
    for i, row in enumerate(rows):
        result[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return result
