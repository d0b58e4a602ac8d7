"""Token losses to minimise, before aggregation. All (R, T-1); ``advantages`` carry no gradient.

``log_ratio`` = log pi_theta - log pi_old on the mask, 0 elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from agentfly_core.algorithms.later import torch

if TYPE_CHECKING:
    from torch import Tensor

Loss: TypeAlias = Literal["clip", "reinforce"]
LOSSES = get_args(Loss)


class ClippedLoss(NamedTuple):
    """The loss, and bool tensors that say where the lower or the upper bound took the gradient away."""

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


def clipped_loss(
    log_ratio: Tensor, advantages: Tensor, *, low: float, high: float, dual: float | None = None
) -> ClippedLoss:
    """-min(rho * A, clip(rho, 1 - low, 1 + high) * A), PPO (1707.06347); high > low is clip-higher (2503.14476).

    With ``dual`` (1912.09729) the loss of a token with A < 0 is at most -dual * A.
    """
    ratio = log_ratio.exp()
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(1 - low, 1 + high) * advantages)
    clipped_low = (ratio < 1 - low) & (advantages < 0)
    clipped_high = (ratio > 1 + high) & (advantages > 0)
    if dual is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
        clipped_high = clipped_high | ((ratio > dual) & (advantages < 0))
    return ClippedLoss(loss, clipped_low, clipped_high)


def reinforce_loss(logp: Tensor, advantages: Tensor) -> Tensor:
    """-A * log pi, the score-function loss."""
    return -advantages * logp
