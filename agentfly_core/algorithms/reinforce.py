"""REINFORCE and its descendants: returns on sampled tokens, whitened over the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from agentfly_core.algorithms.checks import check_choice, check_number
from agentfly_core.algorithms.gae import returns_to_go
from agentfly_core.algorithms.kl import kl_estimate
from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.losses import Loss
from agentfly_core.algorithms.objective import PolicyObjective
from agentfly_core.algorithms.sampled import SampledTokens
from agentfly_core.algorithms.statistics import WHITENINGS, Whitening, group_statistics, to_tokens, whiten
from agentfly_core.types import AdvantageOutput, Needs, TrainBatch, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Reinforce(PolicyObjective):
    """The discounted reward of the chain on every sampled token: gamma^(tokens that follow) * r, no baseline."""

    name: ClassVar[str] = "reinforce"
    loss: Loss = "reinforce"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, low=0, high=1)

    @property
    def needs(self) -> Needs:
        return Needs(rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        tokens = SampledTokens(batch)
        rewards = tokens.at_chain_end(torch.where(batch.scored, batch.rewards, 0.0))
        return AdvantageOutput(tokens.unpack(returns_to_go(rewards, self.gamma)))


@dataclass(frozen=True, kw_only=True)
class ReinforcePlusPlus(PolicyObjective):
    """Token returns with the KL in the reward, whitened over the sampled tokens of the batch (2501.03262).

    r_t = 1[t is the last sampled token] * R - kl_coef * k1_t with k1 = log pi_old - log pi_ref, and
    A_t = sum of r_i over i >= t. verl whitens with Bessel's correction: ``whitening: bessel``.

    Attributes:
        kl_coef: weight of the KL in the reward; 0 needs no reference model.
        whitening: see ``statistics.whiten``.
    """

    name: ClassVar[str] = "reinforce++"
    gamma: float = 1.0
    kl_coef: float = 0.0
    whitening: Whitening = "population"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, low=0, high=1)
        check_number("kl_coef", self.kl_coef, low=0)
        check_choice("whitening", self.whitening, WHITENINGS)

    @property
    def needs(self) -> Needs:
        kl = self.kl_coef > 0
        return Needs(reference=kl, old_logp=kl, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        tokens = SampledTokens(batch)
        rewards = tokens.at_chain_end(torch.where(batch.scored, batch.rewards, 0.0))
        if self.kl_coef > 0:
            rewards = rewards - self.kl_coef * tokens.pack(k1_to_reference(batch)).to(rewards.dtype)
        returns = tokens.unpack(returns_to_go(rewards, self.gamma))
        return AdvantageOutput(whiten(returns, batch.mask, self.whitening))


@dataclass(frozen=True, kw_only=True)
class ReinforcePlusPlusBaseline(PolicyObjective):
    """The reward less the group mean, not divided, whitened over the sampled tokens of the batch (2501.03262).

    The paper's variant puts the KL into the loss: the recipe's ``train.kl``. ``kl_coef`` puts it into the reward.
    """

    name: ClassVar[str] = "reinforce++-baseline"
    kl_coef: float = 0.0
    whitening: Whitening = "population"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("kl_coef", self.kl_coef, low=0)
        check_choice("whitening", self.whitening, WHITENINGS)

    @property
    def needs(self) -> Needs:
        kl = self.kl_coef > 0
        return Needs(groups=True, reference=kl, old_logp=kl, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        s = group_statistics(batch.rewards, batch.group, batch.scored)
        returns = to_tokens(torch.where(batch.scored & ~s.flat, batch.rewards - s.mean, 0.0), batch)
        if self.kl_coef > 0:
            tokens = SampledTokens(batch)
            kl = tokens.pack(k1_to_reference(batch)).to(returns.dtype)
            returns = returns - self.kl_coef * tokens.unpack(returns_to_go(kl, 1.0))
        return AdvantageOutput(whiten(returns, batch.mask, self.whitening))


def k1_to_reference(batch: TrainBatch) -> Tensor:
    """log pi_old - log pi_ref (B, T-1), 0 off the mask."""
    if batch.old_logp is None or batch.ref_logp is None:
        raise UsageError("kl_coef > 0 needs a reference model and recomputed logprobs, which this learner did not give")
    return kl_estimate(batch.old_logp, batch.ref_logp, batch.mask, "k1")
