"""Batches to try an algorithm on, and changes of a batch that must not change its result. Needs torch.

B rows, N chains, W = T-1 columns, as in ``types.TrainBatch``. Numbers are float64.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from agentfly_core.types import TrainBatch

FLOATS = ("old_logp", "rollout_logp", "ref_logp", "values")
"""The optional (B, W) tensors of a batch."""
GARBAGE = 1e4


def random_batch(seed: int, *, chains: int = 6, width: int = 9) -> TrainBatch:
    """One row a chain, two groups, random gaps and turns, garbage off the mask, a few chains unscored."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(chains, width, generator=g) < 0.6
    start = mask & ~torch.cat([torch.zeros(chains, 1, dtype=torch.bool), mask[:, :-1]], dim=1)
    scored = torch.rand(chains, generator=g) < 0.8
    rewards = torch.randint(0, 3, (chains,), generator=g).double()

    def floats() -> Tensor:
        x = torch.randn(chains, width, generator=g, dtype=torch.float64)
        return torch.where(mask, x * 0.3 - 1, x * GARBAGE)

    def keys() -> tuple[str, ...]:
        return tuple("abc"[int(k)] for k in torch.randint(0, 3, (width,), generator=g))

    return TrainBatch(
        mask=mask & scored.unsqueeze(1),
        chain=torch.arange(chains),
        turn_ids=torch.where(mask, start.long().cumsum(1) - 1, -1),
        rewards=torch.where(scored, rewards, torch.nan),
        scored=scored,
        group=torch.randint(0, 2, (chains,), generator=g),
        turn_rewards=tuple(tuple(torch.randn(width, generator=g).tolist()) for _ in range(chains)),
        components={"part": torch.where(scored, torch.rand(chains, generator=g, dtype=torch.float64), torch.nan)},
        anchors=tuple(keys() for _ in range(chains)),
        **{name: floats() for name in FLOATS},
    )


def rows(batch: TrainBatch, index: list[int]) -> dict[str, Any]:
    """Everything of a batch that has rows, at these rows."""
    fields = {name: getattr(batch, name) for name in ("mask", "turn_ids", *FLOATS)}
    return {name: None if value is None else value[index] for name, value in fields.items()}


def pick_chains(batch: TrainBatch, index: list[int]) -> TrainBatch:
    """Only these chains, in this order, of a batch with one row a chain; groups get other numbers."""
    return dataclasses.replace(
        batch,
        chain=torch.arange(len(index)),
        rewards=batch.rewards[index],
        scored=batch.scored[index],
        group=batch.group[index] * 7 + 3,
        turn_rewards=tuple(batch.turn_rewards[i] for i in index),
        components={name: value[index] for name, value in batch.components.items()},
        anchors=None if batch.anchors is None else tuple(batch.anchors[i] for i in index),
        **rows(batch, index),
    )


def pad(batch: TrainBatch, more_rows: int, more_columns: int) -> TrainBatch:
    """Padding rows after the others, and columns after the others."""
    size, width = batch.mask.shape
    grown: dict[str, Any] = {}
    for name, old in rows(batch, list(range(size))).items():
        if old is not None:
            fill = -1 if name == "turn_ids" else False if name == "mask" else GARBAGE
            grown[name] = torch.full((size + more_rows, width + more_columns), fill, dtype=old.dtype)
            grown[name][:size, :width] = old
    chain = torch.cat([batch.chain, torch.full((more_rows,), -1)])
    return dataclasses.replace(batch, chain=chain, **grown)


def split_rows(batch: TrainBatch, seed: int) -> tuple[TrainBatch, list[int]]:
    """Every row cut at a random column into two; also returns which row each one was."""
    g = torch.Generator().manual_seed(seed)
    size, width = batch.mask.shape
    cuts = torch.randint(0, width + 1, (size,), generator=g).tolist()
    index = [i for i in range(size) for _ in range(2)]
    made = rows(batch, index)
    columns = torch.arange(width)
    for i, cut in enumerate(cuts):
        made["mask"][2 * i] &= columns < cut
        made["mask"][2 * i + 1] &= columns >= cut
    return dataclasses.replace(batch, chain=batch.chain[index], **made), index


def unscore(batch: TrainBatch, scored: Tensor) -> TrainBatch:
    """A batch with one row a chain in which only the ``scored`` (N,) chains are."""
    rewards = torch.where(scored, batch.rewards, torch.nan)
    return dataclasses.replace(batch, scored=scored, rewards=rewards, mask=batch.mask & scored.unsqueeze(1))


def level(batch: TrainBatch) -> TrainBatch:
    """Every chain scored 1, and no distance from the reference: nothing to tell the chains of a group apart."""
    return dataclasses.replace(
        batch,
        rewards=torch.ones_like(batch.rewards),
        scored=torch.ones_like(batch.scored),
        ref_logp=batch.old_logp,
        components={name: torch.ones_like(value) for name, value in batch.components.items()},
    )


def counts(batch: TrainBatch) -> dict[str, int]:
    """What ``policy_loss`` is told of an optimizer step over the whole batch."""
    sampled = torch.zeros(len(batch.rewards)).index_add(0, batch.chain.clamp(min=0), batch.mask.sum(1).float())
    return {
        "token_count": int(batch.mask.sum()),
        "nonempty_count": int((sampled > 0).sum()),
        "chain_count": len(batch.rewards),
    }
