"""Numbers of a step, from where they arise in the trainer's process to where they are logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from agentfly_core.learners.collate import Collated
from agentfly_core.learners.diagnostics import group_metrics, rollout_metrics, sampler_gap
from agentfly_learner_openrlhf.job import current_recipe
from agentfly_learner_openrlhf.records import ChainRecord

NAMES = {
    "policy_loss": "loss/policy",
    "critic_loss": "loss/critic",
    "entropy_loss": "entropy",
    "values": "critic/values",
    "actor_lr": "optim/lr",
    "actor_grad_norm": "optim/grad_norm",
    "critic_lr": "critic/lr",
    "critic_grad_norm": "critic/grad_norm",
    "ppo_kl": "kl/old",
    "kl": "kl/openrlhf",
    "optim/steps": "optim/steps",
    "timing/make_experience": "experience/seconds",
    "timing/ppo_train": "update/seconds",
    "timing/broadcast": "broadcast/seconds",
    "timing/step_total": "step/seconds",
}
"""OpenRLHF's names -> ours. Its others are left out: they count padding as chains, or repeat ours."""


class StepNumbers:
    """The chains of the step in hand, and what was measured on them. In the trainer's process."""

    def __init__(self) -> None:
        self._records: Sequence[ChainRecord] = ()
        self._metrics: dict[str, float] = {}

    def rollout(self, records: Sequence[ChainRecord], data: Collated | None, metrics: Mapping[str, float]) -> None:
        """A batch is about to be trained on.

        Args:
            data: the batch as algorithms see it; None where OpenRLHF's own advantages are used.
            metrics: of the algorithm.
        """
        self._records, self._metrics = records, dict(metrics)
        if data is not None:
            batch = data.batch
            self._metrics |= group_metrics(data, expected=current_recipe().recipe.train.chains_per_task)
            if batch.rollout_logp is not None and batch.old_logp is not None:
                self._metrics |= sampler_gap(batch.old_logp, batch.rollout_logp, batch.mask)

    def step(self, status: Mapping[str, Any]) -> dict[str, float]:
        """All numbers of the step, given those that OpenRLHF logs."""
        seconds = float(status.get("timing/generation", 0.0))
        threshold = current_recipe().recipe.evaluation.success_threshold
        metrics = rollout_metrics(self._records, seconds, threshold=threshold)  # type: ignore[arg-type]
        metrics |= self._metrics | _translated(status)
        self._records, self._metrics = (), {}
        return metrics


@cache
def step_numbers() -> StepNumbers:
    """This process's."""
    return StepNumbers()


def _translated(status: Mapping[str, Any]) -> dict[str, float]:
    """What OpenRLHF logs, and the algorithm's own numbers, which have a slash in their names as all of ours."""
    found = {}
    for name, value in status.items():
        own = "/" in name and not name.startswith(("rollout/", "timing/"))
        if value is not None and (own or name in NAMES):
            found[NAMES.get(name, name)] = float(value)
    return found
