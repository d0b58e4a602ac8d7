"""Where a run's numbers and chains go: the run folder, the recipe's trackers, the observers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from agentfly_core.types import MetricSink, Trajectory, UsageError

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder


class Report:
    """Writes a run's folder while it runs. As a context manager it also writes how the run ended."""

    def __init__(self, recipe: LoadedRecipe, folder: RunFolder) -> None:
        self._recipe = recipe
        self._folder = folder
        self._sinks: list[MetricSink] = []
        self._latest: dict[str, float] = {}

    def __enter__(self) -> Report:
        self._sinks = self._recipe.trackers(self._folder.path)
        self._folder.update_status("running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for sink in self._sinks:
            sink.close()
        with suppress(UsageError):  # the disk that ended the run may refuse this as well
            if isinstance(error, KeyboardInterrupt):
                self._folder.update_status("stopped")
            elif error is not None:
                text = str(error).strip().splitlines()
                self._folder.update_status(
                    "failed", error=f"{type(error).__name__}: {text[0]}" if text else repr(error)
                )

    def trajectory(self, step: int, trajectory: Trajectory) -> None:
        """Keep a chain for the step's trajectory file, if the recipe wants them."""
        if self._recipe.recipe.run.save_trajectories:
            self._folder.trajectories.append(step, trajectory)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done: write its numbers and chains, and tell the observers. Step 0 is before the first update."""
        self._folder.trajectories.flush(step)
        self._folder.metrics.append(step, metrics)
        for sink in self._sinks:
            sink.log(step, metrics)
        self._folder.update_status(step=step)
        self._latest |= metrics
        self._recipe.plugins.notify("update_finished", step=step, metrics=dict(metrics))

    def finish(self, step: int, *, stopped: bool) -> None:
        """The run ended after ``step``, by itself or because it was asked to."""
        self._folder.update_status("stopped" if stopped else "finished", step=step)
        summary = {"steps": step, "stopped": stopped, "metrics": dict(self._latest)}
        self._recipe.plugins.notify("run_finished", folder=self._folder.path, summary=summary)
