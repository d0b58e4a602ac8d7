"""What OpenRLHF does otherwise than the recipe's words suggest, said beside the resolved flags."""

from __future__ import annotations

from collections.abc import Iterator

from agentfly_learner_openrlhf.flags.mapping import Plan


def notes(plan: Plan) -> Iterator[str]:
    """One line each, beginning with the field."""
    r = plan.recipe
    if r.model.dtype == "float32":
        yield "model.dtype: models compute in bfloat16; the weights being trained are kept in float32"
    if r.rollout.backend.options:
        yield "rollout.backend.options: not used; OpenRLHF generates with its own vLLM engines"
    optimizer = r.train.optimizer
    if optimizer.warmup_steps and optimizer.schedule != "cosine":
        yield "train.optimizer.warmup_steps: the warm-up begins at 0, so the first optimizer step changes nothing"
    if optimizer.name == "muon":
        yield "train.optimizer.max_grad_norm: not applied to the policy, as DeepSpeed would clip what Muon made of it"
        if optimizer.weight_decay:
            yield "train.optimizer.weight_decay: with muon DeepSpeed also decays vectors"
