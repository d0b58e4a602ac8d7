"""The recipe's algorithm in place of OpenRLHF's loss."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from agentfly_core.types import Algorithm
from agentfly_learner_openrlhf.job import current_job, current_recipe
from agentfly_learner_openrlhf.trainer.counts import Counts, sum_over_ranks, with_counts, with_dynamic_counts

FEW_TOKENS = 1e-6
"""Weight of a micro-batch without a token in OpenRLHF's averages, which it divides by: too small to be seen in them."""


class AlgorithmLoss(nn.Module):
    """Called as OpenRLHF calls its ``PolicyLoss``. A row is a chain.

    Attributes:
        counts: of the optimizer step that the next micro-batch belongs to.
        metrics: of the last micro-batch: the algorithm's, a token each.
        total: what the losses of all micro-batches since the last ``take`` add up to.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.counts = Counts()
        self.metrics: dict[str, float] = {}
        self.total = 0.0

    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor,
        rollout_log_probs: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """The loss, the share of clipped tokens, and the mean of log pi_old - log pi over the micro-batch's tokens.

        All arguments are (R, T-1). A micro-batch without a sampled token has loss 0.
        """
        mask, counts = action_mask.bool(), self.counts
        output = self.algorithm.policy_loss(
            log_probs,
            old_log_probs,
            rollout_log_probs,
            advantages,
            mask,
            token_count=max(counts.tokens, 1),
            nonempty_count=max(counts.nonempty, 1),
            chain_count=max(counts.chains, 1),
            scale=counts.scale,
        )
        tokens = mask.sum().clamp(min=1)
        self.metrics = {name: float(value / tokens) for name, value in output.metrics.items()}
        self.total += float(output.loss.detach()) / counts.scale
        clipped = sum(value for name, value in self.metrics.items() if name.startswith("clip/"))
        moved = torch.where(mask, old_log_probs - log_probs.detach(), 0.0).sum() / tokens
        loss = output.loss if output.loss.requires_grad else output.loss + 0.0 * log_probs.sum()
        return loss, torch.as_tensor(clipped, device=loss.device), moved, None, None

    def take(self) -> float:
        """The total, which begins anew."""
        total, self.total = self.total, 0.0
        return total


def replace_in(module: ModuleType) -> None:
    """Put ours in the place of the names that OpenRLHF's policy trainer looks up."""
    trainer = module.ActorPPOTrainer
    trainer.ppo_train = _reporting(trainer.ppo_train)
    trainer.training_step = never_without_tokens(trainer.training_step)
    if current_job().own_algorithm:
        return
    loss = AlgorithmLoss(current_recipe().algorithm)
    module.PolicyLoss = lambda **options: loss
    module.iter_grad_accum_global_norm = with_counts(module.iter_grad_accum_global_norm, loss)
    module.get_loss_batch_info = with_dynamic_counts(module.get_loss_batch_info, loss)
    trainer.training_step = _with_metrics(trainer.training_step, loss)


def _reporting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Log how many optimizer steps DeepSpeed took, and their mean loss."""

    def ppo_train(self: Any, *arguments: Any, **options: Any) -> Any:
        before = self.actor.model.global_steps
        status = {**original(self, *arguments, **options)}
        steps = self.actor.model.global_steps - before
        status["optim/steps"] = float(steps)
        if isinstance(self.actor_loss_fn, AlgorithmLoss):
            total = sum_over_ranks(self.strategy, [self.actor_loss_fn.take()])[0]
            status["policy_loss"] = total / max(steps, 1)
        return status

    return ppo_train


def never_without_tokens(original: Callable[..., Any]) -> Callable[..., Any]:
    """A micro-batch in which no chain is scored would end the training: its averages are divided by its tokens."""

    def training_step(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        return {**result, "num_action_tokens": max(result["num_action_tokens"], FEW_TOKENS)}

    return training_step


def _with_metrics(original: Callable[..., Any], loss: AlgorithmLoss) -> Callable[..., Any]:
    """Log the algorithm's own numbers."""

    def training_step(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        result["metrics"] |= loss.metrics
        result["weights"] |= dict.fromkeys(loss.metrics, "token")
        return result

    return training_step
