"""Chains without their gaps: the sampled tokens of each chain side by side.

Discounting, GAE and turn structure speak of sampled tokens only; observations, prompts, padding and the borders
between the segments of a chain are not time steps. ``SampledTokens`` packs (B, T-1) tensors into (N, L), N chains
with at most L sampled tokens, left-aligned in the order of sampling, and unpacks the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentfly_core.algorithms.later import torch
from agentfly_core.types import TrainBatch

if TYPE_CHECKING:
    from torch import Tensor


class SampledTokens:
    """Where the sampled tokens of a batch go in its packed form.

    Attributes:
        mask: (N, L) bool, True where a packed row has a token.
        turn: (N, L) int64, turn number, -1 past the end.
        turn_end: (N, L) bool, True on the last sampled token of each turn.
        turn_start: (N, L) bool, True on the first.
        ordinal: (N, L) int64, 0 on the chain's first turn that has a token, 1 on its second and so on.
    """

    def __init__(self, batch: TrainBatch) -> None:
        rows, columns = batch.mask.nonzero(as_tuple=True)
        order = torch.argsort(batch.chain[rows], stable=True)
        self._rows, self._columns = rows[order], columns[order]
        self._chains = batch.chain[self._rows]
        lengths = torch.bincount(self._chains, minlength=batch.rewards.numel())
        start = lengths.cumsum(0) - lengths
        self._positions = torch.arange(self._rows.numel(), device=rows.device) - start[self._chains]
        self._shape = (lengths.numel(), int(lengths.max()) if lengths.numel() else 0)
        self._unpacked = batch.mask.shape
        self.mask = torch.arange(self._shape[1], device=rows.device) < lengths.unsqueeze(1)
        self.turn = torch.where(self.mask, self.pack(batch.turn_ids), -1)
        border = torch.full_like(self.turn[:, :1], -2)
        self.turn_start = self.mask & (self.turn != torch.cat([border, self.turn[:, :-1]], dim=1))
        self.turn_end = self.mask & (self.turn != torch.cat([self.turn[:, 1:], border], dim=1))
        self.ordinal = self.turn_start.long().cumsum(1) - 1

    def pack(self, x: Tensor) -> Tensor:
        """(B, T-1) -> (N, L)."""
        packed = x.new_zeros(self._shape)
        packed[self._chains, self._positions] = x[self._rows, self._columns]
        return packed

    def unpack(self, x: Tensor) -> Tensor:
        """(N, L) -> (B, T-1), 0 off the mask."""
        unpacked = x.new_zeros(self._unpacked)
        unpacked[self._rows, self._columns] = x[self._chains, self._positions]
        return unpacked

    def at_chain_end(self, per_chain: Tensor) -> Tensor:
        """(N,) -> (N, L): the number on the chain's last sampled token, 0 elsewhere."""
        last = self.mask & (self.mask.sum(1, keepdim=True) - 1 == torch.arange(self._shape[1], device=self.mask.device))
        return torch.where(last, per_chain.unsqueeze(1), 0.0)

    def at_turn_ends(self, batch: TrainBatch) -> Tensor:
        """(N, L): each turn's reward on the turn's last sampled token, 0 elsewhere.

        A turn without a sampled token hands its reward to the sampled token before it, so that none is lost.
        """
        most = max((len(r) for r in batch.turn_rewards), default=0)
        table = [list(r) + [0.0] * (most - len(r)) for r in batch.turn_rewards]
        rewards = torch.tensor(table, dtype=batch.rewards.dtype, device=self.mask.device).reshape(len(table), most)
        rewards = torch.where(batch.scored.unsqueeze(1), rewards, 0.0)
        upto = torch.cat([rewards.new_zeros(len(table), 1), rewards.cumsum(1)], dim=1)
        following = torch.cat([self.turn[:, 1:], torch.full_like(self.turn[:, :1], -1)], dim=1)
        following = torch.where(following < 0, most, following)
        gained = upto.gather(1, following) - upto.gather(1, self.turn.clamp(min=0))
        return torch.where(self.turn_end, gained, 0.0)
