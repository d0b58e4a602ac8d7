"""The learner that runs everything in this process, on the CPU or one GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from agentfly_core.backends.loading import load_model, resolve_device
from agentfly_core.learners.checkpointing import read_trainer, write_model, write_trainer
from agentfly_core.learners.collate import collate
from agentfly_core.learners.diagnostics import group_metrics, rollout_metrics
from agentfly_core.learners.evaluate import evaluate
from agentfly_core.learners.handover import close_backend, hand_over, sample_groups
from agentfly_core.learners.optim import ScheduledOptimizer
from agentfly_core.learners.policy import Policy
from agentfly_core.learners.reporting import Report
from agentfly_core.learners.update import Updater, UpdateSettings
from agentfly_core.runs.files import replace_folder
from agentfly_core.runs.trajectories import TrajectoryWriter
from agentfly_core.types import GenerationBackend, RolloutEngine, Task, Trajectory, UsageError

if TYPE_CHECKING:
    from agentfly_core.recipes.engine import RecipeEngine
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder


@dataclass(frozen=True, kw_only=True)
class LocalLearner:
    """Samples, updates and hands the weights over, one after the other.

    The weights trained are float32 whatever ``model.dtype`` says; with another dtype the forward pass runs under
    autocast and the backend keeps its copy in that dtype.

    Attributes:
        recompute_old_logp: compute the old policy's logprobs in a pass of their own also where a single optimizer step
            a batch makes that superfluous.
        share_prompts: the chains of a group go through the model with one copy of their prompt, where it can do that:
            faster, and the same gradient but for rounding.
    """

    name: ClassVar[str] = "local"
    recompute_old_logp: bool = False
    share_prompts: bool = True

    def check(self, recipe: LoadedRecipe) -> list[str]:
        """Reasons, each with its field and a way out, for which this recipe cannot be trained; [] if it can.

        Raises:
            MissingDependency: trajectories are to be saved, but what writes them is not installed.
        """
        r, needs = recipe.recipe, recipe.algorithm.needs
        if r.run.save_trajectories:
            TrajectoryWriter.check()
        reasons = []
        if needs.critic:
            reasons.append(
                f"algorithm: {r.algorithm.name} needs a critic, which the learner 'local' does not train; "
                "use grpo, rloo, reinforce++ or mt-ppo"
            )
        if needs.anchors and r.environment is None:
            reasons.append(f"environment: {r.algorithm.name} needs one that names its states; use grpo without one")
        if r.rollout.temperature == 0:
            reasons.append("rollout.temperature: 0 samples the same chain every time, so nothing is learned; use 1.0")
        if r.train.minibatches > r.train.tasks_per_step:
            reasons.append(
                f"train.minibatches: {r.train.tasks_per_step} tasks a step (train.tasks_per_step) cannot be split into "
                f"{r.train.minibatches} parts, as the chains of a task stay together; use fewer"
            )
        return reasons

    def dry_run(self, recipe: LoadedRecipe) -> dict[str, Any]:
        """What training would do, as plain data, for ``agentfly train --dry-run``."""
        r, needs = recipe.recipe, recipe.algorithm.needs
        e, train = r.evaluation, r.train
        evaluated = sum(e.every > 0 and step % e.every == 0 for step in range(1, train.steps))
        return {
            "model": recipe.model_path,
            "device": str(resolve_device(r.model.device)),
            "reference_model": train.kl.coef > 0 or needs.reference,
            "steps": train.steps,
            "chains_per_step": train.tasks_per_step * train.chains_per_task,
            "optimizer_steps": train.steps * train.epochs * train.minibatches,
            "evaluations": e.before + evaluated + (e.after or (e.every > 0 and train.steps % e.every == 0)),
        }

    def train(
        self, recipe: LoadedRecipe, folder: RunFolder, *, resume: bool = False, stop: threading.Event | None = None
    ) -> None:
        """Train to the recipe's last step, or until ``stop`` is set: the step in hand is finished and saved.

        An evaluation in hand is broken off, and no weights are written if nothing was trained.

        Raises:
            UsageError: the recipe cannot be honoured, or the run has all its steps.
        """
        if reasons := self.check(recipe):
            raise UsageError("; ".join(reasons))
        with Report(recipe, folder) as report:
            _Training(self, recipe, folder, report, stop or threading.Event()).run(resume=resume)


@dataclass
class _Training:
    """One run, from loading the weights to writing them."""

    learner: LocalLearner
    recipe: LoadedRecipe
    folder: RunFolder
    report: Report
    stop: threading.Event
    policy: Policy = field(init=False)
    optimizer: ScheduledOptimizer = field(init=False)
    updater: Updater = field(init=False)

    def run(self, *, resume: bool) -> None:
        done = self._load(resume=resume)
        steps = self.recipe.recipe.train.steps
        if done < steps:
            done = self._train(done, steps)
        elif self.folder.model_path.exists():
            raise UsageError(f"{self.folder.path} has all its {done} steps; raise train.steps to train on")
        if done:
            replace_folder(self.folder.model_path, self._write_model)
        self.report.finish(done, stopped=done < steps)

    def _load(self, *, resume: bool) -> int:
        """Weights, optimizer and reference; returns the number of steps done."""
        config = self.recipe.recipe
        saved = self.folder.checkpoints.latest() if resume else None
        torch.manual_seed(config.seed)
        try:
            self.policy = self._load_policy(saved[1] if saved else self.recipe.model_path)
        except UsageError as error:
            if saved is None:
                raise
            text = f"the checkpoint {saved[1]} cannot be resumed; delete it to go on from the one before: {error}"
            raise UsageError(text) from error
        settings = UpdateSettings(
            epochs=config.train.epochs,
            minibatches=config.train.minibatches,
            micro_batch_tokens=config.train.micro_batch_tokens,
            kl_coef=config.train.kl.coef,
            kl_kind=config.train.kl.kind,
            recompute_old_logp=self.learner.recompute_old_logp,
            seed=config.seed,
        )
        self.optimizer = ScheduledOptimizer(
            self.policy.model, config.train.optimizer, config.train.steps * settings.steps
        )
        reference = None
        if config.train.kl.coef > 0 or self.recipe.algorithm.needs.reference:
            # Where the run began, also if it is resumed: not the checkpoint.
            reference = self._load_policy(self.recipe.model_path).frozen()
        self.updater = Updater(self.policy, self.recipe.algorithm, self.optimizer, settings, reference)
        done = read_trainer(saved[1], self.optimizer) if saved else 0
        if resume:
            self.folder.rewind(done if saved else -1)
        return done

    def _load_policy(self, path: str | Path) -> Policy:
        config = self.recipe.recipe
        model = load_model(path, dtype="float32", device=config.model.device, attention=config.model.attention)
        policy = Policy(model, config.rollout.temperature, getattr(torch, config.model.dtype))
        return policy.sharing_prompts() if self.learner.share_prompts else policy

    def _train(self, done: int, steps: int) -> int:
        """Steps ``done + 1`` to ``steps``, fewer if stopped; returns the last one done."""
        config = self.recipe.recipe
        backend = self.recipe.backend()
        try:
            engine = self.recipe.engine(backend, folder=self.folder.path)
            try:
                hand_over(backend, self.policy.weights(), done)
                if done == 0 and config.evaluation.before and not self.stop.is_set():
                    self.report.step(0, self._evaluate(engine, 0))
                tasks = self.recipe.train_tasks(done * config.train.tasks_per_step)
                saved = done
                while done < steps and not self.stop.is_set():
                    done += 1
                    self._step(engine, backend, tasks, done)
                    if config.run.checkpoint_every and done % config.run.checkpoint_every == 0:
                        saved = self._save(done)
                if saved < done:
                    self._save(done)
            finally:
                engine.close()
        finally:
            close_backend(backend)
        return done

    def _step(self, engine: RecipeEngine, backend: GenerationBackend, tasks: Iterator[Task], step: int) -> None:
        config = self.recipe.recipe
        chains, metrics = self._sample(engine, tasks, step)
        metrics |= engine.resource_metrics()
        started = time.perf_counter()
        data = collate(chains)
        metrics |= group_metrics(data, expected=config.train.chains_per_task)
        metrics |= self.updater.update(data, step)
        metrics["update/seconds"] = time.perf_counter() - started
        hand_over(backend, self.policy.weights(), step)
        every, last = config.evaluation.every, step == config.train.steps
        if not self.stop.is_set() and ((every and step % every == 0) or (last and config.evaluation.after)):
            metrics |= self._evaluate(engine, step)
        self.report.step(step, metrics)

    def _sample(
        self, engine: RolloutEngine, tasks: Iterator[Task], step: int
    ) -> tuple[list[Trajectory], dict[str, float]]:
        config = self.recipe.recipe
        batch = list(islice(tasks, config.train.tasks_per_step))
        if len(batch) < config.train.tasks_per_step:
            raise UsageError(f"data.train: the tasks ended at step {step}; lower train.steps or give more")
        started = time.perf_counter()
        chains = sample_groups(engine, batch, config.train.chains_per_task, label=f"step-{step}")
        metrics = rollout_metrics(chains, time.perf_counter() - started, threshold=config.evaluation.success_threshold)
        for chain in chains:
            self.report.trajectory(step, chain)
        return chains, metrics

    def _evaluate(self, engine: RolloutEngine, step: int) -> dict[str, float]:
        config = self.recipe.recipe
        return evaluate(
            engine,
            self.recipe.eval_tasks(config.evaluation.tasks),
            modes=config.evaluation.modes,
            recipe=config,
            on_trajectory=lambda chain: self.report.trajectory(step, chain),
            stop=self.stop,
        )

    def _save(self, step: int) -> int:
        def write(folder: Path) -> None:
            self._write_model(folder)
            write_trainer(folder, step, self.optimizer)

        self.folder.checkpoints.save(step, write)
        self.folder.checkpoints.prune(self.recipe.recipe.run.keep_checkpoints)
        return step

    def _write_model(self, folder: Path) -> None:
        write_model(self.policy.model, folder, tokenizer_from=self.recipe.model_path)
