from dataclasses import dataclass

import torch

from agentfly_core.types import AdvantageOutput, LossOutput, Needs


@dataclass(frozen=True)
class MeanBaseline:
    """REINFORCE with the mean reward of the batch as its baseline."""

    scale: float = 1.0
    name: str = "mean-baseline"

    @property
    def needs(self):
        return Needs()

    def advantages(self, batch):
        scored = batch.scored
        centred = torch.where(scored, batch.rewards - batch.rewards[scored].mean(), 0.0) * self.scale
        rows = torch.where(batch.chain >= 0, centred[batch.chain.clamp(min=0)], 0.0)
        return AdvantageOutput(rows[:, None] * batch.mask)

    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, token_count, scale=1.0, **counts):
        return LossOutput(-(logp * advantages * mask).sum() / max(token_count, 1) * scale)
