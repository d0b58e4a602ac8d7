"""Tensors that pass between a learner and an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class TrainBatch:
    """The whole update batch, on one device, as every algorithm sees it.

    B rows are segments, N chains own them (a chain that sampled nothing may own none), T is the padded length;
    column t of a (B, T-1) tensor speaks of token t+1. Padding rows have ``chain`` -1 and an empty mask.
    Observation and padding positions carry finite garbage in every float tensor.

    Attributes:
        mask: (B, T-1) bool, True on sampled tokens of scored chains.
        chain: (B,) int64, index of the row's chain in the per-chain tensors. A chain's rows stand in order.
        turn_ids: (B, T-1) int64, turn number within the chain on sampled tokens, -1 elsewhere.
        rewards: (N,) score of each chain, garbage where not scored.
        scored: (N,) bool.
        group: (N,) int64, equal for chains that share a baseline.
        turn_rewards: N rows of one number per turn.
        old_logp: (B, T-1) recomputed by the trainer before the update; None where nothing asks for it
            (``Needs.old_logp``, several optimizer steps a batch): the update's own forward pass then gives it.
        rollout_logp: (B, T-1) of the engine that sampled, or None.
        ref_logp: (B, T-1) of the reference model, or None.
        values: (B, T-1) value of the state before each token, or None.
        components: name -> (N,) reward components, NaN where a chain lacks one.
        anchors: N rows of one state key per turn, or None.
    """

    mask: Tensor
    chain: Tensor
    turn_ids: Tensor
    rewards: Tensor
    scored: Tensor
    group: Tensor
    turn_rewards: tuple[tuple[float, ...], ...]
    old_logp: Tensor | None = None
    rollout_logp: Tensor | None = None
    ref_logp: Tensor | None = None
    values: Tensor | None = None
    components: Mapping[str, Tensor] = field(default_factory=dict)
    anchors: tuple[tuple[str | None, ...], ...] | None = None


@dataclass(slots=True)
class AdvantageOutput:
    """Advantages (B, T-1), 0 off the mask; value targets (B, T-1) or None; numbers for the log."""

    advantages: Tensor
    returns: Tensor | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class LossOutput:
    """A scalar to minimise, with its graph, and detached numbers for the log.

    ``metrics`` are sums over the tokens given; the learner divides by the optimizer step's token count.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needs:
    """What an algorithm asks of a learner; a learner that cannot give it refuses the recipe."""

    groups: bool = False
    """At least two chains a task."""
    critic: bool = False
    """``values`` of a trained critic."""
    reference: bool = False
    """``ref_logp``."""
    old_logp: bool = False
    """``old_logp`` for the advantages (the loss always gets it)."""
    rollout_logp: bool = False
    """Engine logprobs for importance correction."""
    turns: bool = False
    """Turn structure and turn rewards."""
    anchors: bool = False
    """State keys of an environment."""
