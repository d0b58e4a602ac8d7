"""The policy loss that the algorithms of this package share, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentfly_core.algorithms.aggregation import AGGREGATIONS, Aggregation, constant, seq_mean_token_mean, token_mean
from agentfly_core.algorithms.checks import check_choice, check_number
from agentfly_core.algorithms.corrections import CORRECTIONS, Correction, icepop, log_weights, tis
from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.losses import LOSSES, Loss, clipped_loss, reinforce_loss
from agentfly_core.types import LossOutput, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PolicyObjective:
    """Token loss, correction for the engine's logprobs, aggregation. Algorithms inherit the options.

    Attributes:
        loss: ``clip`` (PPO) or ``reinforce`` (-A log pi).
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: with A < 0 the loss of a token is at most -dual_clip * A; None leaves it unbounded.
        aggregation: ``token_mean``, ``seq_mean_token_mean`` or ``constant``.
        constant_length: L_max of the ``constant`` aggregation, in tokens.
        correction: importance weights between engine and trainer: ``none``, ``tis`` or ``icepop``.
        correction_low: lower bound of ``icepop``.
        correction_high: cap of ``tis`` (None: 2), upper bound of ``icepop`` (None: 5).
    """

    loss: Loss = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: Aggregation = "token_mean"
    constant_length: int | None = None
    correction: Correction = "none"
    correction_low: float = 0.5
    correction_high: float | None = None

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_number("clip_low", self.clip_low, low=0, high=1)
        check_number("clip_high", self.clip_high, low=0)
        if self.dual_clip is not None:
            check_number("dual_clip", self.dual_clip, low=1 + self.clip_high)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        if self.constant_length is not None:
            check_number("constant_length", self.constant_length, low=1)
        if self.aggregation == "constant" and self.constant_length is None:
            raise UsageError("aggregation constant needs constant_length: the longest response in tokens, say 1024")
        check_choice("correction", self.correction, CORRECTIONS)
        check_number("correction_low", self.correction_low, low=0)
        if self.correction_high is not None:
            check_number("correction_high", self.correction_high, low=0)

    def policy_loss(
        self,
        logp: Tensor,
        old_logp: Tensor,
        rollout_logp: Tensor | None,
        advantages: Tensor,
        mask: Tensor,
        *,
        token_count: int,
        nonempty_count: int,
        chain_count: int,
        scale: float = 1.0,
        chain: Tensor | None = None,
    ) -> LossOutput:
        """See ``types.Algorithm.policy_loss``. Metrics: tokens whose gradient a clip bound took away."""
        # Off the mask logprobs are garbage: exp of it may overflow, and inf * 0 is NaN, so it goes before the exp.
        log_ratio = torch.where(mask, logp - old_logp, 0.0)
        advantages = torch.where(mask, advantages, 0.0)
        metrics = {}
        if self.loss == "clip":
            loss, clipped_low, clipped_high = clipped_loss(
                log_ratio, advantages, low=self.clip_low, high=self.clip_high, dual=self.dual_clip
            )
            metrics = {"clip/low": (clipped_low & mask).sum(), "clip/high": (clipped_high & mask).sum()}
        else:
            loss = reinforce_loss(torch.where(mask, logp, 0.0), advantages)
        if self.correction != "none":
            loss = loss * self._correction_weights(old_logp, rollout_logp, mask)
        total = self._aggregate(loss, mask, chain, token_count, nonempty_count, chain_count)
        return LossOutput(scale * total, metrics)

    def _correction_weights(self, old_logp: Tensor, rollout_logp: Tensor | None, mask: Tensor) -> Tensor:
        if rollout_logp is None:
            raise UsageError(f"correction {self.correction} needs the engine's logprobs; use correction: none")
        log_w = log_weights(old_logp, rollout_logp, mask)
        if self.correction == "tis":
            return tis(log_w, cap=2.0 if self.correction_high is None else self.correction_high)
        return icepop(
            log_w, low=self.correction_low, high=5.0 if self.correction_high is None else self.correction_high
        )

    def _aggregate(
        self, loss: Tensor, mask: Tensor, chain: Tensor | None, tokens: int, nonempty: int, chains: int
    ) -> Tensor:
        if self.aggregation == "token_mean":
            return token_mean(loss, mask, token_count=tokens)
        if self.aggregation == "seq_mean_token_mean":
            return seq_mean_token_mean(loss, mask, chain, nonempty_count=nonempty)
        assert self.constant_length is not None  # __post_init__ refuses the combination
        return constant(loss, mask, chain_count=chains, length=self.constant_length)
