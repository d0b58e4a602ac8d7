"""What a run shows while it runs."""

from __future__ import annotations

import math
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentfly_core.cli.progress import RL_COLUMNS, Progress, duration
from agentfly_core.types import ChainStatus, Task, Trajectory


def shown(progress: Progress) -> list[str]:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(progress.table())
    return [line.rstrip() for line in capture.get().splitlines()]


def chain(split: str, status: ChainStatus = ChainStatus.COMPLETED, **values: Any) -> Trajectory:
    values = {"scored": True, **values}
    return Trajectory(Task("t"), 0, "g", split, status, **values)  # type: ignore[arg-type]


def test_the_table_follows_the_run() -> None:
    progress = Progress(20, 0, RL_COLUMNS)
    assert math.isnan(progress.seconds_left)
    progress.trajectory_finished(chain("eval"))
    progress.trajectory_finished(chain("eval"))
    assert shown(progress)[-1].startswith("evaluating, 2 chains finished, 0:0")
    progress.update_finished(0, {"eval/sampled/success": 0.1, "eval/greedy/success": 0.05, "eval/sampled/reward": 0.3})
    held_out = "held-out success after step 0: sampled 0.100, greedy 0.050"
    assert shown(progress)[0] == held_out
    progress.trajectory_finished(chain("train"))
    assert shown(progress)[-1].startswith("step 1 of 20, 1 chains finished")
    for step in range(1, 15):
        progress.update_finished(step, {"reward/mean": step / 100, "rollout/tokens_per_second": 1234.5})
    first, *lines = shown(progress)
    assert first == held_out
    assert lines[0].split() == ["step", "reward", "success", "calls/chain", "tokens/s", "time", "left"]
    assert [line.split()[0] for line in lines[1:-1]] == [f"{step}/20" for step in range(3, 15)]
    assert lines[-2].split()[:5] == ["14/20", "0.140", "-", "-", "1234"]


class Said(Progress):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__(3, 0, {})
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_chains_without_a_score_are_told_of_once_for_each_way_they_end() -> None:
    progress = Said()
    failed = {"scored": False, "unscored_reason": "reward 'r' failed: KeyError: 'x'"}
    for step in (1, 2):
        progress.trajectory_finished(chain("train"))
        progress.trajectory_finished(chain("train", **failed))
        progress.trajectory_finished(chain("train", **failed))
        progress.trajectory_finished(chain("eval", ChainStatus.TIMEOUT, scored=False))
        progress.update_finished(step, {})
    progress.trajectory_finished(chain("train", ChainStatus.ABORTED, scored=False, error="E: \x1b[2J\n" + "a" * 300))
    progress.update_finished(3, {})
    assert [line for line in progress.lines if "without" in line] == [
        "step 1: 2 chains ended as completed without a score, one because: reward 'r' failed: KeyError: 'x'",
        f"step 3: 1 chains ended as aborted without a score, one because: E: \\x1b[2J {'a' * 189}...",
    ]
    assert any("KeyError: 'x'" in line for line in shown(progress))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3723, "1:02:03"), (math.nan, "-"), (math.inf, "-")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_terminal_gets_a_live_table(workspace: Path, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentfly_core", "train", "recipe.yaml", "learner.options.pause=0.1"]
    process = subprocess.Popen(
        command, cwd=workspace, env={**environment, "TERM": "xterm"}, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(timeout=60) == 0, seen.decode()
    text = seen.decode()
    assert "tokens/s" in text
    assert "4/4" in text
    assert "\x1b[?25h" in text  # the cursor is back
