"""What happens around OpenRLHF's training steps: evaluation, metrics, checkpoints, ending early."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from agentfly_learner_openrlhf.hub import Event, hub, tell
from agentfly_learner_openrlhf.job import current_job, current_recipe
from agentfly_learner_openrlhf.trainer import saving
from agentfly_learner_openrlhf.trainer.evaluation import evaluate_now
from agentfly_learner_openrlhf.trainer.numbers import step_numbers
from agentfly_learner_openrlhf.trainer.resources import resource_metrics


def replace_in(module: ModuleType) -> None:
    """Put ours in the place of OpenRLHF's logger, and around methods of its trainers' common base."""
    module.TensorboardLogger = StepLogger
    module.prepare_datasets = _with_all_steps(module.prepare_datasets)
    trainer = module.BasePPOTrainer
    trainer.init_checkpoint_states = _evaluating_first(trainer.init_checkpoint_states)
    trainer.save_logs_and_checkpoints = _finishing(trainer.save_logs_and_checkpoints)


def _with_all_steps(original: Callable[..., Any]) -> Callable[..., Any]:
    """The schedule's length is that of the run, not of its data, of which a filter needs more."""

    def prepare_datasets(strategy: Any, tokenizer: Any) -> Any:
        args = strategy.args
        chains = args.rollout.batch_size * args.rollout.n_samples_per_prompt
        prompts, evaluation, _ = original(strategy, tokenizer)
        return prompts, evaluation, current_job().steps * (chains // args.train.batch_size) * args.train.max_epochs

    return prepare_datasets


class StepLogger:
    """Stands where OpenRLHF has a TensorBoard logger: tells the driver, which writes the run folder."""

    def __init__(self, args: Any) -> None:
        self.others: dict[str, float] = {}
        """Numbers to go out with the next step's."""

    def log_train(self, step: int, logs_dict: dict[str, Any]) -> None:
        """Numbers of a training step."""
        metrics = step_numbers().step(logs_dict) | self.others
        self.others = {}
        tell(Event("metrics", step, metrics))

    def log_eval(self, step: int, logs_dict: dict[str, Any]) -> None:
        """OpenRLHF's own evaluation is off."""

    def close(self) -> None:
        """All steps are done."""


def _evaluating_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """OpenRLHF asks for the checkpoint's states once, before the first step."""

    def init_checkpoint_states(self: Any) -> Any:
        states = original(self)
        if current_job().start == 0 and current_recipe().recipe.evaluation.before:
            tell(Event("metrics", 0, evaluate_now(self, 0)))
        return states

    return init_checkpoint_states


def _finishing(original: Callable[..., None]) -> Callable[..., None]:
    """At the end of a step: evaluate if it is time, log, save if it is time or the run ends here."""

    def save_logs_and_checkpoints(self: Any, step: int, logs: Any = None, client_states: Any = None) -> None:
        import ray

        job, evaluation = current_job(), current_recipe().recipe.evaluation
        last = step >= job.steps
        self.tensorboard_logger.others = resource_metrics(self.vllm_engines)
        if not ray.get(hub().stop_requested.remote()) and (
            (evaluation.every and step % evaluation.every == 0) or (last and evaluation.after)
        ):
            self.tensorboard_logger.others |= evaluate_now(self, step)
        ends = last or ray.get(hub().ends_with.remote(step))
        every = self.args.ckpt.save_steps
        if ends:
            self.args.ckpt.save_steps = 1
        try:
            original(self, step, logs, client_states)
        finally:
            self.args.ckpt.save_steps = every
        if ends or step % every == 0:
            saving.finish(step)
            tell(Event("saved", step))
        if ends:
            ray.get(hub().end_batches.remote())

    return save_logs_and_checkpoints
