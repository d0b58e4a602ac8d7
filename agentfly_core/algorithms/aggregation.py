"""From token losses (R, T-1) to a scalar.

The denominators are those of the whole optimizer step, handed in, so that the losses of its micro-batches add up to
the loss of the step. An empty denominator gives 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from agentfly_core.algorithms.later import torch

if TYPE_CHECKING:
    from torch import Tensor

Aggregation: TypeAlias = Literal["token_mean", "seq_mean_token_mean", "constant"]
AGGREGATIONS = get_args(Aggregation)


def token_mean(loss: Tensor, mask: Tensor, *, token_count: int) -> Tensor:
    """Sum over sampled tokens / sampled tokens of the step (2503.14476)."""
    return _masked(loss, mask).sum() / max(token_count, 1)


def seq_mean_token_mean(loss: Tensor, mask: Tensor, chain: Tensor | None, *, nonempty_count: int) -> Tensor:
    """Mean over chains with a sampled token of their mean over sampled tokens (2402.03300).

    The rows of a chain, told by ``chain`` (R,), count as one sequence; they must all be among the rows given.
    """
    tokens = chain_sums(mask.to(loss.dtype), chain)
    return (chain_sums(_masked(loss, mask), chain) / tokens.clamp(min=1)).sum() / max(nonempty_count, 1)


def constant(loss: Tensor, mask: Tensor, *, chain_count: int, length: int) -> Tensor:
    """Sum over sampled tokens / (chains * length), Dr. GRPO (2503.20783): no length or difficulty bias."""
    return _masked(loss, mask).sum() / max(chain_count * length, 1)


def chain_sums(x: Tensor, chain: Tensor | None) -> Tensor:
    """(R, T-1) -> (C,): sums over all rows of each of the C chains among the rows; None: a row is a chain."""
    sums = x.sum(dim=1)
    if chain is None:
        return sums
    _, index = torch.unique(chain, return_inverse=True)
    size = int(index.max()) + 1 if index.numel() else 0
    return sums.new_zeros(size).index_add(0, index, sums)


def _masked(loss: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, loss, 0.0)
