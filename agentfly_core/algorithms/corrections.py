"""Importance weights between the engine that sampled and the trainer: w_t = pi_old / pi_rollout. All (R, T-1).

Weights are detached. A weight of 0 drops a token's loss and leaves the denominators alone. Bounds are inclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from agentfly_core.algorithms.later import torch

if TYPE_CHECKING:
    from torch import Tensor

Correction: TypeAlias = Literal["none", "tis", "icepop"]
CORRECTIONS = get_args(Correction)


def log_weights(old_logp: Tensor, rollout_logp: Tensor, mask: Tensor) -> Tensor:
    """log w on the mask, 0 elsewhere, and 0 (ratio 1) where the engine's logprob is NaN or infinite."""
    known = mask & torch.isfinite(rollout_logp)
    return torch.where(known, old_logp.detach() - torch.where(known, rollout_logp, 0.0), 0.0)


def tis(log_w: Tensor, *, cap: float) -> Tensor:
    """min(w, cap): truncated importance sampling (fengyao.notion.site/off-policy-rl). No lower bound."""
    return log_w.exp().clamp(max=cap)


def icepop(log_w: Tensor, *, low: float, high: float) -> Tensor:
    """w inside [low, high], 0 outside (2510.18855)."""
    w = log_w.exp()
    return torch.where((w >= low) & (w <= high), w, 0.0)
