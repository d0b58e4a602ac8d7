"""The recipe's algorithm in place of OpenRLHF's advantages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from agentfly_core.learners.collate import Collated, is_scored, turn_rewards
from agentfly_core.types import Algorithm, TrainBatch
from agentfly_learner_openrlhf.job import current_job, current_recipe
from agentfly_learner_openrlhf.records import PADDING, ChainRecord
from agentfly_learner_openrlhf.trainer.numbers import step_numbers

Rows = list[tuple[int, int]]
"""(experience, row in it) of each chain, in the order in which the batch was sampled."""


def replace_in(module: ModuleType) -> None:
    """Put ours in the place of the method of OpenRLHF's experience maker."""
    maker = module.RemoteExperienceMaker
    maker.compute_advantages_and_returns = _compute(maker.compute_advantages_and_returns)


def _compute(original: Callable[..., Any]) -> Callable[..., Any]:
    @torch.no_grad()
    def compute_advantages_and_returns(self: Any, experiences: list[Any]) -> list[Any]:
        records = [label for e in experiences for label in e.labels if label != PADDING]
        if current_job().own_algorithm:
            metrics, data = {}, None
            experiences = original(self, experiences)
        else:
            algorithm = current_recipe().algorithm
            data, rows = collect(experiences, reference=algorithm.needs.reference)
            metrics = put_advantages(experiences, data.batch, rows, algorithm)
        step_numbers().rollout(records, data, metrics)
        for experience in experiences:
            experience.labels = [None] * len(experience.labels)  # the trainers need none of it
            experience.info["kl"] = experience.info["kl"].nan_to_num(
                0.0
            )  # the mean over no tokens of an unscored chain
        return experiences

    return compute_advantages_and_returns


def collect(experiences: Sequence[Any], *, reference: bool = False) -> tuple[Collated, Rows]:
    """The whole batch as algorithms see it, one row a chain, from OpenRLHF's experiences; padding is left out.

    Args:
        reference: give the logprobs of the reference model, which must be there.
    """
    rows = sorted(
        ((e, i) for e, x in enumerate(experiences) for i in range(len(x.labels)) if x.labels[i] != PADDING),
        key=lambda at: experiences[at[0]].index[at[1]],
    )
    records: list[ChainRecord] = [experiences[e].labels[i] for e, i in rows]
    width = max(x.action_mask.shape[1] for x in experiences)

    def stack(tensors: Callable[[Any], Tensor | None], columns: int = width) -> Tensor | None:
        if not rows or tensors(experiences[0]) is None:
            return None
        return torch.stack([_wide(tensors(experiences[e])[i], columns) for e, i in rows])

    sequences = stack(lambda x: x.sequences, width + 1)
    mask = stack(lambda x: x.action_mask.bool())
    assert sequences is not None
    assert mask is not None
    groups = {group: number for number, group in enumerate(dict.fromkeys(r.group for r in records))}
    names = sorted({name for r in records for name in r.components})
    batch = TrainBatch(
        mask=mask,
        chain=torch.arange(len(rows)),
        turn_ids=torch.stack([_turn_ids(r, width) for r in records]),
        rewards=torch.tensor([r.reward for r in records], dtype=torch.float64),
        scored=torch.tensor([is_scored(r) for r in records]),  # type: ignore[arg-type]
        group=torch.tensor([groups[r.group] for r in records]),
        turn_rewards=tuple(turn_rewards(r) for r in records),  # type: ignore[arg-type]
        old_logp=stack(lambda x: x.action_log_probs.float()),
        rollout_logp=stack(lambda x: x.rollout_log_probs.float()),
        ref_logp=stack(_reference) if reference else None,
        values=stack(lambda x: None if _absent(x.values) else x.values.float()),
        components={
            n: torch.tensor([r.components.get(n, torch.nan) for r in records], dtype=torch.float64) for n in names
        },
        anchors=_anchors(records),
    )
    lengths = torch.tensor([int(experiences[e].attention_mask[i].sum()) for e, i in rows])
    return Collated(sequences, lengths, batch), rows


def put_advantages(experiences: Sequence[Any], batch: TrainBatch, rows: Rows, algorithm: Algorithm) -> dict[str, float]:
    """Compute them for the whole batch and put them where OpenRLHF's trainers look; returns the algorithm's metrics."""
    output = algorithm.advantages(batch)
    advantages = torch.where(batch.mask, output.advantages, 0.0).float()
    returns = torch.zeros_like(advantages) if output.returns is None else output.returns.float()
    for experience in experiences:
        experience.advantages = torch.zeros(experience.action_mask.shape)
        experience.returns = torch.zeros(experience.action_mask.shape)
        experience.info["return"] = experience.rewards.float()
        experience.kl = None
    for row, (e, i) in enumerate(rows):
        columns = experiences[e].action_mask.shape[1]
        experiences[e].advantages[i] = advantages[row, :columns]
        experiences[e].returns[i] = torch.where(batch.mask[row, :columns], returns[row, :columns], 0.0)
    return dict(output.metrics)


def _wide(row: Tensor, columns: int) -> Tensor:
    """Filled up at the right with zeros."""
    return torch.cat([row, row.new_zeros(columns - row.shape[0])])


def _absent(value: Any) -> bool:
    """OpenRLHF has None, or a list of it, for a model that is not there."""
    return not isinstance(value, Tensor)


def _reference(experience: Any) -> Tensor:
    """Logprobs of the reference model. Where the penalty is no loss, OpenRLHF keeps only the difference (k1)."""
    if not _absent(experience.base_action_log_probs):
        return torch.as_tensor(experience.base_action_log_probs).float()
    return torch.as_tensor(experience.action_log_probs - experience.kl).float()


def _turn_ids(record: ChainRecord, width: int) -> Tensor:
    """(T-1,): turn number on sampled tokens, -1 elsewhere; column t speaks of token t+1."""
    turns = torch.full((width + 1,), -1, dtype=torch.int64)
    for span in _spans(record):
        turns[span.start : span.end] = span.turn
    return turns[1:]


def _spans(record: ChainRecord) -> Iterator[Any]:
    for spans in record.segments:
        yield from spans


def _anchors(records: Sequence[ChainRecord]) -> tuple[tuple[str | None, ...], ...] | None:
    anchors = tuple(tuple(turn.anchor for turn in r.turns) for r in records)
    return anchors if any(a is not None for row in anchors for a in row) else None
