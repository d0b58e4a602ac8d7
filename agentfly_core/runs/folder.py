"""A run's folder and what lies where in it.

::

    recipe.yaml                       as resolved: loads again from anywhere
    environment.json                  versions, machine, seed, plugins
    status.json                       what it is doing, or how it ended
    .lock                             held by the process that runs it
    metrics.jsonl                     one line a step
    trajectories/step-000001-train.parquet
    checkpoints/step-000010/
    model/                            the final weights
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from os import getpid
from pathlib import Path
from typing import Any

import yaml

from agentfly_core.plugins import Plugins
from agentfly_core.runs import lock
from agentfly_core.runs.checkpoints import Checkpoints
from agentfly_core.runs.environment import environment_facts
from agentfly_core.runs.files import replace_folder, replace_text, sweep_partial
from agentfly_core.runs.metrics import MetricsLog
from agentfly_core.runs.status import RunStatus, State, read_status, write_status
from agentfly_core.runs.trajectories import TrajectoryWriter
from agentfly_core.types.errors import UsageError


class RunFolder:
    """One run on disk. One process writes; any may read at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, root: str | Path, name: str, recipe: Mapping[str, Any], *, plugins: Plugins | None = None
    ) -> RunFolder:
        """Make ``root/NAME-DATE-TIME-SUFFIX`` (unique, even for two runs at once) and say that it runs here.

        Args:
            recipe: what is written as ``recipe.yaml``; plain data.
            plugins: named with their states in ``environment.json``.
        """
        folder = cls(_unique(Path(root), name).resolve())
        folder.take()
        replace_text(folder.recipe_path, yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True))
        facts = environment_facts(seed=recipe.get("seed"), plugins=plugins)
        replace_text(folder.path / "environment.json", json.dumps(facts, indent=2) + "\n")
        folder.trajectories.path.mkdir()
        folder.checkpoints.path.mkdir()
        now = time.time()
        folder._write(RunStatus("running", 0, getpid(), platform.node(), now, now))
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run.

        Raises:
            UsageError: there is none at ``path``.
        """
        folder = cls(Path(path).resolve())
        if not folder.path.is_dir():
            raise UsageError(f"run folder {folder.path} does not exist")
        folder.status()
        return folder

    @property
    def recipe_path(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def model_path(self) -> Path:
        """Where the final weights lie, as a Hugging Face model folder."""
        return self.path / "model"

    def weights(self) -> Path:
        """The final model, or else that of the latest checkpoint.

        Raises:
            UsageError: there is neither yet.
        """
        latest = self.checkpoints.latest()
        if self.model_path.is_dir():
            return self.model_path
        if latest is None:
            raise UsageError(f"{self.path} has no weights: neither model/ nor a checkpoint")
        return latest[1]

    @cached_property
    def metrics(self) -> MetricsLog:
        return MetricsLog(self.path / "metrics.jsonl")

    @cached_property
    def trajectories(self) -> TrajectoryWriter:
        return TrajectoryWriter(self.path / "trajectories")

    @cached_property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    def status(self) -> RunStatus:
        """The state as last written."""
        return read_status(self._status_path)

    def stale(self) -> bool:
        """It says that it is running, but nobody runs it."""
        return self.status().stale(lock.is_held(self.path))

    def take(self, *, shared: bool = False) -> None:
        """Say that this process runs the run, until its status says that it has ended or the process does.

        Args:
            shared: together with the process that submitted this one, or was submitted by it.

        Raises:
            UsageError: another process runs it, or the folder cannot be written.
        """
        if not lock.take(self.path, shared=shared):
            raise self.taken()

    def release(self) -> None:
        """This process does not run the run any more, whatever its status says."""
        lock.release(self.path)

    def taken(self) -> UsageError:
        """The error of one who would run a running run."""
        status = self.status()
        by = f"process {status.pid} on {status.host}" if status.state == "running" else "another process has just begun"
        return UsageError(f"{self.path} is running ({by})")

    def update_status(self, state: State | None = None, *, step: int | None = None, error: str = "") -> None:
        """Rewrite the status for this process; what is None stays as it was.

        Raises:
            UsageError: it is to be ``running`` and another process runs it.
        """
        if state == "running":
            self.take()
        old = self.status()
        self._write(
            replace(
                old,
                state=state or old.state,
                step=old.step if step is None else step,
                pid=getpid(),
                host=platform.node(),
                updated=time.time(),
                error=error,
            )
        )
        if state not in (None, "running"):
            self.release()

    @contextlib.contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Whatever the block raises is written into the status, unless that already says how the run ended."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(UsageError):  # the disk that failed the block may refuse this as well
                if self.status().state == "running":
                    self.update_status("failed", error=" ".join(f"{type(error).__name__}: {error}".split()))
            raise

    def write_model(self, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill an empty folder with the final weights and put it at ``model_path``."""
        replace_folder(self.model_path, write)

    def rewind(self, step: int) -> None:
        """Forget all metrics and trajectories after ``step``, as a resumed run makes them again, and what a killed
        process left unfinished."""
        sweep_partial(self.path)
        sweep_partial(self.trajectories.path)
        self.metrics.rewind(step)
        self.trajectories.rewind(step)

    @property
    def _status_path(self) -> Path:
        return self.path / "status.json"

    def _write(self, status: RunStatus) -> None:
        write_status(self._status_path, status)


def plain_name(recipe: str) -> str:
    """How the names of a recipe's run folders begin."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", recipe).strip("-.") or "run"


def recipe_of(folder: str) -> str | None:
    """What comes before date, time and suffix in the name of a run folder; None for other names."""
    found = re.fullmatch(r"(.+)-\d{8}-\d{6}-[0-9a-f]{4}", folder)
    return found[1] if found else None


def _unique(root: Path, name: str) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            path = root / f"{plain_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise UsageError(f"cannot make a run folder in {root} (run.root): {error}") from error
