"""Means and spreads over groups of chains and over sampled tokens.

Shapes: N chains; x and mask of ``whiten`` have any equal shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from agentfly_core.algorithms.later import torch
from agentfly_core.types import TrainBatch

if TYPE_CHECKING:
    from torch import Tensor

Whitening: TypeAlias = Literal["population", "bessel", "none"]
WHITENINGS = get_args(Whitening)


class GroupStatistics(NamedTuple):
    """Of the group each chain belongs to; all (N,). ``size`` counts its valid chains.

    ``flat`` is True where the group teaches nothing: fewer than two scored chains, or max == min. The test is on
    max == min and not on the standard deviation, which rounding leaves above 0 (three rewards of 0.1, say).
    """

    mean: Tensor
    std: Tensor
    size: Tensor
    flat: Tensor


def group_statistics(values: Tensor, group: Tensor, valid: Tensor, *, ddof: int = 1) -> GroupStatistics:
    """Statistics of ``values`` (N,) over the chains of each ``group`` (N,) that are ``valid`` (N,).

    ``std`` divides by size - ddof. Values that are not valid may hold anything, NaN included. Groups without a
    valid chain have mean 0, std 0 and size 0.
    """
    _, index = torch.unique(group, return_inverse=True)
    groups = int(index.max()) + 1 if index.numel() else 0
    x = torch.where(valid, values, 0.0)

    def total(terms: Tensor) -> Tensor:
        return terms.new_zeros(groups).index_add_(0, index, terms)

    count = total(valid.to(x.dtype))
    mean = total(x) / count.clamp(min=1)
    deviation = torch.where(valid, x - mean[index], 0.0)
    std = (total(deviation**2) / (count - ddof).clamp(min=1)).sqrt()
    low = x.new_full((groups,), torch.inf).scatter_reduce(0, index[valid], x[valid], "amin")
    high = x.new_full((groups,), -torch.inf).scatter_reduce(0, index[valid], x[valid], "amax")
    flat = (count < 2) | (low == high)
    return GroupStatistics(mean[index], std[index], count[index], flat[index])


def whiten(x: Tensor, mask: Tensor, kind: Whitening) -> Tensor:
    """``x`` with mean 0 and variance 1 over ``mask``, 0 elsewhere.

    ``population``: (x - mean) / sqrt(max(var, 1e-8)), the form of REINFORCE++ (2501.03262).
    ``bessel``: var * n / (n - 1) and (x - mean) / sqrt(var + 1e-8), the form of verl.
    ``none``: x on the mask.
    """
    x = torch.where(mask, x, 0.0)
    if kind == "none":
        return x
    n = mask.sum()
    mean = x.sum() / n.clamp(min=1)
    centred = torch.where(mask, x - mean, 0.0)
    variance = (centred**2).sum() / (n if kind == "population" else n - 1).clamp(min=1)
    scale = variance.clamp(min=1e-8) if kind == "population" else variance + 1e-8
    return centred / scale.sqrt()


def to_tokens(per_chain: Tensor, batch: TrainBatch) -> Tensor:
    """(N,) -> (B, T-1): each chain's number on all sampled tokens of all its rows, 0 elsewhere."""
    if per_chain.numel() == 0:
        return per_chain.new_zeros(batch.mask.shape)
    return torch.where(batch.mask, per_chain[batch.chain.clamp(min=0)].unsqueeze(1), 0.0)
