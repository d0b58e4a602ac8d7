"""What is put in place in every worker process of a run, before OpenRLHF is imported there.

OpenRLHF's actors are classes that Ray pickles by value, but all that is replaced here belongs to plain classes and
modules, which the workers import themselves. In the driver nothing is ever replaced: Ray would copy it along, and the
replacement made here would then have no effect.
"""

from __future__ import annotations

from types import ModuleType

from agentfly_learner_openrlhf.after_import import after_import


def install() -> None:
    """Ray's ``worker_process_setup_hook``. Imports nothing heavy: an error here would only show in a worker's log."""
    package = "openrlhf.trainer"
    after_import(
        {
            f"{package}.ppo_utils.samples_generator": _samples,
            f"{package}.ppo_utils.experience_maker": _advantages,
            f"{package}.ppo_trainer": _steps,
            f"{package}.ray.ppo_actor": _loss,
            "openrlhf.utils.deepspeed.deepspeed": _saving,
            "openrlhf.utils.loss_utils": _counts,
            "vllm.v1.engine.async_llm": _weights,
        }
    )


def _samples(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.samples import replace_in

    replace_in(module)


def _advantages(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.advantages import replace_in

    replace_in(module)


def _steps(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.steps import replace_in

    replace_in(module)


def _loss(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.loss import replace_in

    replace_in(module)


def _saving(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.saving import replace_in

    replace_in(module)


def _counts(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.trainer.counts import replace_in

    replace_in(module)


def _weights(module: ModuleType) -> None:
    from agentfly_learner_openrlhf.rollout.weights import replace_in

    replace_in(module)
