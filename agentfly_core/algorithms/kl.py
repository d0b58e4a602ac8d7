"""Estimators of the KL divergence from the policy to a reference model, per sampled token.

With d = log pi - log pi_ref: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. As a loss, E grad k2 is the gradient of
KL(pi || pi_ref), E grad k1 is 0, and E grad k3 is the gradient of the other direction, KL(pi_ref || pi).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from agentfly_core.algorithms.later import torch

if TYPE_CHECKING:
    from torch import Tensor

KLKind: TypeAlias = Literal["k1", "k2", "k3"]


def kl_estimate(
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    kind: KLKind,
    *,
    clamp: float | None = None,
    old_logp: Tensor | None = None,
) -> Tensor:
    """Estimates (R, T-1) with the graph of ``logp``, 0 off the mask.

    Args:
        clamp: bound on the magnitude; a clamped token has gradient 0.
        old_logp: if given, the estimate is multiplied by pi / pi_old, not detached; with k3 the gradient is then
            exactly ratio * d (2512.02556).
    """
    d = torch.where(mask, logp - ref_logp, 0.0)
    if kind == "k1":
        estimate = d
    elif kind == "k2":
        estimate = d**2 / 2
    else:
        estimate = torch.expm1(-d) + d
    if clamp is not None:
        estimate = estimate.clamp(-clamp, clamp)
    if old_logp is not None:
        estimate = torch.where(mask, logp - old_logp, 0.0).exp() * estimate
    return estimate
