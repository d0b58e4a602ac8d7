"""Turn-level credit without a critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from agentfly_core.algorithms.checks import check_choice, check_number
from agentfly_core.algorithms.gae import returns_to_go
from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.objective import PolicyObjective
from agentfly_core.algorithms.sampled import SampledTokens
from agentfly_core.algorithms.statistics import WHITENINGS, Whitening, group_statistics, whiten
from agentfly_core.types import AdvantageOutput, Needs, TrainBatch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class MTPPO(PolicyObjective):
    """mt-ppo (2505.11821) with the return in place of the critic's GAE.

    Each turn's reward lies on the turn's last sampled token; a token's return is the discounted sum of the rewards
    from it on, gamma counting sampled tokens. The returns are then, in this order,

    1. compared within the group if ``baseline: group``: from the returns of turn k goes the mean, over the group's
       scored chains that have a turn k, of the return at that turn's first sampled token. Where fewer than two
       chains have that turn there is nothing to compare with, and its tokens get 0 before whitening;
    2. whitened over the sampled tokens of the batch (``whitening``).

    With ``baseline: none`` and ``whitening: none`` the advantages are the plain returns.
    """

    name: ClassVar[str] = "mt-ppo"
    gamma: float = 1.0
    baseline: Literal["none", "group"] = "none"
    whitening: Whitening = "population"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, low=0, high=1)
        check_choice("baseline", self.baseline, ("none", "group"))
        check_choice("whitening", self.whitening, WHITENINGS)

    @property
    def needs(self) -> Needs:
        return Needs(groups=self.baseline == "group", turns=True, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """(B, T-1)."""
        tokens = SampledTokens(batch)
        returns = returns_to_go(tokens.at_turn_ends(batch), self.gamma)
        if self.baseline == "group":
            returns = _less_group_mean(returns, tokens, batch.group)
        return AdvantageOutput(whiten(tokens.unpack(returns), batch.mask, self.whitening))


def _less_group_mean(returns: Tensor, tokens: SampledTokens, group: Tensor) -> Tensor:
    """(N, L) -> (N, L): returns less their turn's mean over the group."""
    chain, position = tokens.turn_start.nonzero(as_tuple=True)
    turn = tokens.turn[chain, position]
    _, key = torch.unique(torch.stack([group[chain], turn]), dim=1, return_inverse=True)
    at_start = returns[chain, position]
    s = group_statistics(at_start, key, torch.ones_like(turn, dtype=torch.bool))
    # One entry a turn; its ordinal within the chain leads from every token of the turn to that entry.
    shape = (returns.shape[0], int(tokens.ordinal.max()) + 1 if tokens.ordinal.numel() else 0)
    ordinal = tokens.ordinal[chain, position]
    mean, alone = returns.new_zeros(shape), torch.zeros(shape, dtype=torch.bool, device=returns.device)
    mean[chain, ordinal], alone[chain, ordinal] = s.mean, s.size < 2
    where = tokens.ordinal.clamp(min=0)
    keep = tokens.mask & ~alone.gather(1, where)
    return torch.where(keep, returns - mean.gather(1, where), 0.0)
