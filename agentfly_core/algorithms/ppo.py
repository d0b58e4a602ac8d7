"""PPO: the clipped objective with advantages from a critic's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from agentfly_core.algorithms.checks import check_choice, check_number
from agentfly_core.algorithms.gae import gae, turn_gae, two_clock_gae
from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.objective import PolicyObjective
from agentfly_core.algorithms.sampled import SampledTokens
from agentfly_core.algorithms.statistics import WHITENINGS, Whitening, whiten
from agentfly_core.types import AdvantageOutput, Needs, TrainBatch, UsageError


@dataclass(frozen=True, kw_only=True)
class PPO(PolicyObjective):
    """Generalised advantage estimation (1506.02438) and the clipped objective (1707.06347).

    Time steps are sampled tokens: the value after a sampled token is that of the next sampled one, whatever
    observation lies between, as in verl and NeMo-RL. Value targets A + V stay unwhitened.

    Attributes:
        gamma, lam: discount and trace decay a time step.
        clock: ``token``; ``turn`` (a turn is one step, 2512.17008); ``two_clock`` (gamma and lam when a turn is left,
            1 inside it).
        rewards: ``chain`` puts the score on the chain's last sampled token, ``turn`` each turn's reward on its last
            (mt-ppo, 2505.11821).
        whitening: see ``statistics.whiten``.
    """

    name: ClassVar[str] = "ppo"
    gamma: float = 1.0
    lam: float = 0.95
    clock: Literal["token", "turn", "two_clock"] = "token"
    rewards: Literal["chain", "turn"] = "chain"
    whitening: Whitening = "bessel"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gamma", self.gamma, low=0, high=1)
        check_number("lam", self.lam, low=0, high=1)
        check_choice("clock", self.clock, ("token", "turn", "two_clock"))
        check_choice("rewards", self.rewards, ("chain", "turn"))
        check_choice("whitening", self.whitening, WHITENINGS)

    @property
    def needs(self) -> Needs:
        turns = self.rewards == "turn" or self.clock != "token"
        return Needs(critic=True, turns=turns, rollout_logp=self.correction != "none")

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """Advantages and value targets, (B, T-1) each."""
        if batch.values is None:
            raise UsageError("ppo needs the values of a critic, which this learner did not give; use grpo or rloo")
        tokens = SampledTokens(batch)
        values = tokens.pack(batch.values).to(batch.rewards.dtype)
        if self.rewards == "turn":
            rewards = tokens.at_turn_ends(batch)
        else:
            rewards = tokens.at_chain_end(torch.where(batch.scored, batch.rewards, 0.0))
        if self.clock == "turn":
            advantages, targets = turn_gae(rewards, values, tokens, self.gamma, self.lam)
        else:
            if self.clock == "token":
                advantages = gae(rewards, values, tokens.mask, self.gamma, self.lam)
            else:
                advantages = two_clock_gae(rewards, values, tokens, self.gamma, self.lam)
            targets = advantages + values
        whitened = whiten(tokens.unpack(advantages), batch.mask, self.whitening)
        return AdvantageOutput(whitened, returns=tokens.unpack(targets))
