"""What a training or evaluation run shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentfly_core.cli.output import printable
from agentfly_core.hookspecs import hookimpl
from agentfly_core.types import Split, Trajectory

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from agentfly_core.plugins import Plugins

RL_COLUMNS = {
    "reward": "reward/mean",
    "success": "success",
    "calls/chain": "tools/calls_per_chain",
    "tokens/s": "rollout/tokens_per_second",
}
"""Heading -> metric."""

SFT_COLUMNS = {"loss": "loss/sft", "grad norm": "optim/grad_norm", "lr": "optim/lr", "tokens": "sft/tokens"}

_ROWS = 12


class Progress:
    """An observer of a run. Called from the engine's loop and the learner's thread, drawn from a third.

    Args:
        steps: of the whole run.
        done: steps that were done before (a resumed run).
        columns: heading -> metric.
    """

    def __init__(self, steps: int, done: int, columns: Mapping[str, str]) -> None:
        self.columns = columns
        self.steps = steps
        self.step = done
        self._recent: deque[tuple[int, Mapping[str, float], float]] = deque(maxlen=_ROWS)
        self._began = self._step_began = time.monotonic()
        self._taken = 0
        self._evaluated: list[str] = []
        self._unscored: dict[str, tuple[int, str]] = {}
        self._noted: set[str] = set()
        self._notes: list[str] = []
        self._seconds = 0.0
        self._chains = 0
        self._split: Split = "train"
        self._lock = threading.Lock()

    @hookimpl
    def trajectory_finished(self, trajectory: Trajectory) -> None:
        """Count the chains of the batch in hand."""
        with self._lock:
            if trajectory.split != self._split:
                self._split, self._chains = trajectory.split, 0
                if trajectory.split == "train":
                    self._step_began = time.monotonic()
            self._chains += 1
            if trajectory.split == "train" and not trajectory.scored:
                count, reason = self._unscored.get(trajectory.status.value, (0, _cause(trajectory)))
                self._unscored[trajectory.status.value] = (count + 1, reason)

    @hookimpl
    def update_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a line to the table, and one for an evaluation; step 0 is only the evaluation before the first."""
        now = time.monotonic()
        with self._lock:
            if step:
                self._seconds += now - self._step_began
                self._taken += 1
            self.step, self._step_began, self._chains = step, now, 0
            if step:
                self._recent.append((step, dict(metrics), self.seconds_left))
            evaluated = _evaluation(step, metrics)
            notes = self._new_notes(step)
            self._notes += notes
            self._evaluated += [evaluated] if evaluated else []
        if step:
            self.say(self.step_line())
        for note in notes:
            self.say(note)
        if evaluated:
            self.say(evaluated)

    def _new_notes(self, step: int) -> list[str]:
        """Why chains of this step have no score, once for each way in which they ended."""
        found, self._unscored = self._unscored, {}
        new = {status: note for status, note in found.items() if status not in self._noted}
        self._noted |= new.keys()
        return [
            f"step {step}: {count} chains ended as {status} without a score, one because: {reason}"
            for status, (count, reason) in new.items()
        ]

    @property
    def seconds_left(self) -> float:
        """Until the last step, at the mean pace so far; NaN before the first."""
        return self._seconds / self._taken * (self.steps - self.step) if self._taken else math.nan

    def say(self, line: str) -> None:
        """Called with each new line; a live table redraws itself."""

    def step_line(self) -> str:
        """The last step in one line."""
        step, metrics, left = self._recent[-1]
        cells = "  ".join(f"{heading} {_cell(metrics, name)}" for heading, name in self.columns.items())
        return f"step {step}/{self.steps}  {cells}  time left {duration(left)}"

    def table(self) -> Group:
        """The last steps and what is being done now."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("step", *self.columns, "time left"):
            table.add_column(heading, justify="right", min_width=9)
        with self._lock:
            for step, metrics, left in self._recent:
                table.add_row(
                    f"{step}/{self.steps}", *(_cell(metrics, n) for n in self.columns.values()), duration(left)
                )
            doing = self._doing()
            chains = f", {self._chains} chains finished" if self._chains else ""
            running = f"{doing}{chains}, {duration(time.monotonic() - self._began)} since the start"
            said = [Text(line) for line in (*self._notes[-2:], *self._evaluated[-3:])]
        return Group(*said, table, Text(running, style="dim"))

    def _doing(self) -> str:
        if self._split == "eval":
            return "evaluating"
        begun = self._chains or self._recent or self._evaluated
        return f"step {min(self.step + 1, self.steps)} of {self.steps}" if begun else "loading the model"


class _Lines(Progress):
    """One line a step on stderr."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(
    plugins: Plugins, steps: int, done: int = 0, columns: Mapping[str, str] = RL_COLUMNS
) -> Iterator[Progress]:
    """Show the run's progress on stderr while the block runs."""
    from rich.console import Console

    console = Console(stderr=True)
    shown = (Progress if console.is_terminal else _Lines)(steps, done, columns)
    plugins.observe(shown)
    try:
        with _live(shown, console) if console.is_terminal else contextlib.nullcontext():
            yield shown
    finally:
        plugins.unobserve(shown)


def _live(shown: Progress, console: Console) -> Live:
    from rich.live import Live

    return Live(get_renderable=shown.table, console=console, refresh_per_second=4)


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``; ``-`` if it is not known."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _cause(trajectory: Trajectory) -> str:
    """One line, which whatever the text came from cannot drive the terminal with."""
    text = " ".join((trajectory.error or trajectory.unscored_reason or "").split())
    return printable(text if len(text) <= 200 else f"{text[:197]}...")


def _evaluation(step: int, metrics: Mapping[str, float]) -> str:
    found = [
        f"{n.split('/')[1]} {_cell(metrics, n)}" for n in metrics if n.startswith("eval/") and n.endswith("/success")
    ]
    return f"held-out success after step {step}: {', '.join(found)}" if found else ""


def _cell(metrics: Mapping[str, Any], name: str) -> str:
    value = metrics.get(name, math.nan)
    if not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.3g}"
