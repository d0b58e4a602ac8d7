"""Algorithms whose baseline is the group: chains that attempted the same task in the same step.

A chain's advantage goes to all its sampled tokens. Unscored chains leave every statistic and have advantage 0; so has
every chain of a group that teaches nothing (see ``GroupStatistics.flat``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentfly_core.algorithms.aggregation import Aggregation
from agentfly_core.algorithms.checks import check_number
from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.objective import PolicyObjective
from agentfly_core.algorithms.statistics import group_statistics, to_tokens
from agentfly_core.types import AdvantageOutput, Needs, TrainBatch, UsageError


@dataclass(frozen=True, kw_only=True)
class GRPO(PolicyObjective):
    """(r - mean) / (std + eps) (2402.03300).

    Public implementations agree on the unbiased std and differ in eps: TRL 1e-4, verl 1e-6, OpenRLHF 1e-9.

    Attributes:
        eps: added to the std.
        ddof: 1 divides the variance by n - 1, 0 by n.
    """

    name: ClassVar[str] = "grpo"
    aggregation: Aggregation = "seq_mean_token_mean"
    eps: float = 1e-4
    ddof: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps", self.eps, low=0)
        if self.ddof not in (0, 1):
            raise UsageError(f"algorithm option ddof must be 0 or 1; got {self.ddof!r}")

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        s = group_statistics(batch.rewards, batch.group, batch.scored, ddof=self.ddof)
        centred = torch.where(batch.scored & ~s.flat, batch.rewards - s.mean, 0.0)
        return AdvantageOutput(to_tokens(torch.where(s.flat, 0.0, centred / (s.std + self.eps)), batch))


@dataclass(frozen=True, kw_only=True)
class DrGRPO(PolicyObjective):
    """r - mean, without the division that favours easy and hard tasks (2503.20783).

    The paper's loss also has a constant denominator: ``aggregation: constant`` with ``constant_length``.
    """

    name: ClassVar[str] = "dr_grpo"

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        s = group_statistics(batch.rewards, batch.group, batch.scored)
        return AdvantageOutput(to_tokens(torch.where(batch.scored & ~s.flat, batch.rewards - s.mean, 0.0), batch))


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyObjective):
    """r_i - mean of the others (2402.14740), which is G / (G - 1) * (r_i - mean) in a group of G scored chains."""

    name: ClassVar[str] = "rloo"

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        s = group_statistics(batch.rewards, batch.group, batch.scored)
        centred = torch.where(batch.scored & ~s.flat, batch.rewards - s.mean, 0.0)
        return AdvantageOutput(to_tokens(centred * s.size / (s.size - 1).clamp(min=1), batch))
