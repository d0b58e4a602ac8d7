"""One launch of a run, from the recipe to the final model."""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from agentfly_core.learners.reporting import Report
from agentfly_core.runs.files import replace_text, sweep_partial
from agentfly_core.types import AgentFlyError, UsageError
from agentfly_learner_openrlhf import cluster
from agentfly_learner_openrlhf.failures import explain
from agentfly_learner_openrlhf.flags import LearnerOptions, Resolved, RunPaths, resolve
from agentfly_learner_openrlhf.hub import limits_of, name_of, start_hub
from agentfly_learner_openrlhf.job import Job, own_folder, write_recipe
from agentfly_learner_openrlhf.probe import check_nodes
from agentfly_learner_openrlhf.rows import write_rows
from agentfly_learner_openrlhf.supervisor import Supervisor

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder

AGENT_FILE = "from agentfly_learner_openrlhf.rollout.executor import AgentExecutor\n\n__all__ = ['AgentExecutor']\n"
"""OpenRLHF executes a file; all nodes find it in the run folder."""


def launch(recipe: LoadedRecipe, folder: RunFolder, *, resume: bool, stop: threading.Event) -> None:
    """Train the recipe on a Ray cluster into the run folder.

    Raises:
        UsageError: the run has all its steps, a filter has used up its tasks before, or something that the recipe
            names is wrong on a worker.
        ClusterError: the cluster, or something on it, failed.
    """
    cluster.require()
    with Report(recipe, folder) as report:
        saved = folder.checkpoints.latest() if resume else None
        done, steps = saved[0] if saved else 0, recipe.recipe.train.steps
        if done >= steps and folder.model_path.exists():
            raise UsageError(f"{folder.path} has all its {done} steps; raise train.steps to train on")
        if resume:
            folder.rewind(done if saved else -1)
        sweep_partial(folder.checkpoints.path)
        if done < steps:
            done = _Launch(recipe, folder, report, stop).run(done, saved[1] if saved else None)
            if done < steps and not stop.is_set():
                raise out_of_tasks(done, steps)
        report.finish(done, stopped=done < steps)


def out_of_tasks(done: int, steps: int) -> UsageError:
    """The error of a run that nobody stopped: without the filter, there are exactly as many tasks as are trained on."""
    return UsageError(
        f"learner.options.filter_reserve: the tasks at hand were used up after step {done} of {steps}, so many groups "
        "of equal rewards were replaced. The model so far is saved; start a run with a greater reserve, or with tasks "
        "that are harder or easier"
    )


class _Launch:
    """The parts of one launch."""

    def __init__(self, recipe: LoadedRecipe, folder: RunFolder, report: Report, stop: threading.Event) -> None:
        self._recipe = recipe
        self._folder = folder
        self._report = report
        self._stop = stop
        self._options = LearnerOptions.split(recipe.recipe.learner.options)[0]
        own = own_folder(folder.path)
        self._paths = replace(
            RunPaths.inside(str(folder.path)), model=str(own / "model"), checkpoints=str(own / "unused")
        )

    def run(self, done: int, checkpoint: Path | None) -> int:
        """Steps ``done + 1`` to the last, fewer if stopped; returns the last one done."""
        resolved = resolve(self._recipe, self._paths, resume=checkpoint is not None)
        job = self._write_job(done, resolved)
        arguments = self._arguments(resolved, checkpoint)
        with _failures_explained() as logs, cluster.connected(job, self._options) as logs.folder:
            cluster.wait_for_gpus(resolved.placement.gpus, self._options.cluster_timeout, self._stop.is_set)
            if self._stop.is_set():
                return done
            if cluster.is_shared(self._options):
                check_nodes()
            hub = start_hub(name_of(job), *limits_of(self._recipe.recipe))
            supervisor = Supervisor(hub, self._report, self._options, self._stop, done)
            with self._output():
                supervisor.watch(lambda: _train(arguments))
            done = supervisor.step
        if done > job.start:
            self._folder.write_model(lambda target: _move(Path(self._paths.model), target))
        return done

    def _write_job(self, done: int, resolved: Resolved) -> Job:
        """Everything that the run's processes read from its folder."""
        recipe = self._recipe.recipe
        write_recipe(self._recipe, self._folder.path)
        job = Job(
            id=secrets.token_hex(4),
            folder=str(self._folder.path),
            start=done,
            steps=recipe.train.steps,
            own_algorithm=resolved.own_algorithm,
            filter_flat_groups=self._options.filter_flat_groups,
        )
        replace_text(Path(self._paths.agent), AGENT_FILE)
        spare = self._options.filter_reserve if self._options.filter_flat_groups else 1.0
        count = math.ceil(recipe.train.steps * recipe.train.tasks_per_step * spare)
        write_rows(Path(self._paths.train), islice(self._recipe.train_tasks(), count))
        job.write()
        return job

    def _arguments(self, resolved: Resolved, checkpoint: Path | None) -> SimpleNamespace:
        """What OpenRLHF's ``train`` takes; evaluation is ours (see ``trainer.evaluation``)."""
        arguments = resolved.namespace
        arguments.eval.dataset, arguments.eval.steps = None, -1
        arguments.ckpt.save_hf = True
        if checkpoint is not None:
            from agentfly_learner_openrlhf.trainer.saving import resumable

            arguments.ckpt.path = str(resumable(checkpoint))
        return arguments

    @contextlib.contextmanager
    def _output(self) -> Iterator[None]:
        """What OpenRLHF prints in this process goes into a file of the run."""
        with (
            (own_folder(self._folder.path) / "driver.log").open("a", encoding="utf-8") as file,
            contextlib.redirect_stdout(file),
        ):
            yield


def _train(arguments: SimpleNamespace) -> None:
    import openrlhf.cli.train_ppo_ray as openrlhf

    openrlhf.train(arguments)


def _move(source: Path, target: Path) -> None:
    for file in source.iterdir():
        file.rename(target / file.name)
    source.rmdir()


class _Logs:
    """Where Ray's logs are, once that is known."""

    folder = "Ray was not reached"


@contextlib.contextmanager
def _failures_explained() -> Iterator[_Logs]:
    """Ray's errors, from the driver's or a worker's, in one line."""
    logs = _Logs()
    try:
        yield logs
    except AgentFlyError:
        raise
    except Exception as error:
        raise explain(error, logs=logs.folder) from error
