"""A run as a job of a Ray cluster: submitted from here, driven from there."""

from __future__ import annotations

import importlib
import shlex
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.runs.files import replace_text
from agentfly_core.types import MissingDependency, UsageError
from agentfly_learner_openrlhf.failures import ClusterError
from agentfly_learner_openrlhf.flags.upstream import REQUIREMENT
from agentfly_learner_openrlhf.job import own_folder, write_recipe

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder
    from agentfly_learner_openrlhf.options import LaunchOptions

LOOK_SECONDS = 1.0


def require() -> None:
    """Find out that what submits a job is installed.

    Raises:
        MissingDependency: it is not.
    """
    try:
        importlib.import_module("ray.job_submission")
    except ImportError as error:
        raise MissingDependency("ray", "the learner 'openrlhf'", REQUIREMENT) from error


def submit(
    recipe: LoadedRecipe, folder: RunFolder, options: LaunchOptions, *, resume: bool, stop: threading.Event
) -> None:
    """Submit the run, and wait until it has ended. Its own process on the cluster writes the run folder.

    Raises:
        UsageError: the job ended with one.
        ClusterError: the job failed otherwise, or cannot be submitted.
    """
    require()
    from ray.job_submission import JobStatus, JobSubmissionClient

    assert options.submit is not None
    try:
        client = JobSubmissionClient(options.submit)
    except (ConnectionError, RuntimeError) as error:
        raise ClusterError(f"learner.options.submit: no Ray dashboard answers at {options.submit}: {error}") from error
    stop_file(folder.path).unlink(missing_ok=True)
    write_recipe(recipe, folder.path)
    command = ["python", "-m", "agentfly_learner_openrlhf.entry", str(folder.path), *(["--resume"] if resume else [])]
    environment = {} if options.working_dir is None else {"working_dir": options.working_dir}
    folder.take(shared=True)  # with the job's process, which outlives this one if this one is killed
    job = client.submit_job(entrypoint=shlex.join(command), runtime_env=environment)
    seen = _Seen(recipe, folder)
    while not (status := client.get_job_status(job)).is_terminal():
        if stop.is_set() and not stop_file(folder.path).exists():
            replace_text(stop_file(folder.path), "")
        seen.look()
        time.sleep(LOOK_SECONDS)
    seen.look()
    folder.release()
    if status != JobStatus.SUCCEEDED:
        raise _failure(folder, client.get_job_info(job))


def stop_file(folder: Path) -> Path:
    """Its existence asks a submitted run to end after the step in hand."""
    return own_folder(folder) / "stop"


class _Seen:
    """Follows the run folder on behalf of those who watch the submitting process."""

    def __init__(self, recipe: LoadedRecipe, folder: RunFolder) -> None:
        self._recipe = recipe
        self._folder = folder
        self._known = len(folder.metrics.read())

    def look(self) -> None:
        """Tell observers of steps that are new."""
        rows = self._folder.metrics.read()
        self._known = min(self._known, len(rows))  # a resumed run has taken some back
        for row in rows[self._known :]:
            metrics = {name: value for name, value in row.items() if name != "step"}
            self._recipe.plugins.notify("update_finished", step=int(row["step"]), metrics=metrics)
        self._known = len(rows)


def _failure(folder: RunFolder, info: Any) -> UsageError | ClusterError:
    said = folder.status().error or info.message or "it was stopped"
    if getattr(info, "driver_exit_code", None) == UsageError.exit_code:
        return UsageError(said)
    return ClusterError(f"the submitted job {info.submission_id} failed: {said}")
