"""Runs that are stopped or killed, as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agentfly_core.runs import RunFolder

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


def only_run(workspace: Path) -> RunFolder:
    [path] = (workspace / "runs").iterdir()
    return RunFolder.open(path)


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begun(workspace: Path) -> Callable[[], bool]:
    """Whether the run has done its first step."""

    def check() -> bool:
        logs = list((workspace / "runs").glob("*/metrics.jsonl"))
        return bool(logs) and logs[0].read_text().count("\n") > 1

    return check


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_checkpoint(start: Start, agentfly: Run, workspace: Path, number: int) -> None:
    process = start("train", "recipe.yaml", "train.steps=10000", "learner.options.pause=0.2")
    wait_for(begun(workspace), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    folder = only_run(workspace)
    assert process.returncode == 130, err
    assert "stopping after this step" in err
    assert f"go on with: agentfly train --resume runs/{folder.path.name}" in err
    assert folder.status().state == "stopped"
    latest = folder.checkpoints.latest()
    assert latest is not None
    assert latest[0] == folder.status().step
    assert f"run folder: runs/{folder.path.name}" in out
    step = folder.status().step
    resumed = agentfly("train", f"train.steps={step + 1}", "--resume", "demo")
    assert "learner.options" not in resumed.stderr
    assert resumed.exit_code == 0, resumed.output
    assert [row["step"] for row in folder.metrics.read()] == list(range(step + 2))


@pytest.mark.parametrize("steps", [0, 2])
def test_a_second_signal_ends_it_at_once(start: Start, agentfly: Run, workspace: Path, steps: int) -> None:
    if steps:
        agentfly("train", "recipe.yaml", f"train.steps={steps}", "learner.options.pause=600", "learner.options.quick=2")
    command = ("train.steps=5", "--resume", "demo") if steps else ("recipe.yaml", "learner.options.pause=600")
    process = start("train", *command)
    wait_for(lambda: any("running" in p.read_text() for p in (workspace / "runs").glob("*/status.json")), process)
    time.sleep(0.5)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    while "what came after the last checkpoint is lost" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    _, said = process.communicate()
    folder = only_run(workspace)
    assert folder.status().state == "stopped"
    lost = (
        "what came after step 2 is lost; go on from there with" if steps else "before the first checkpoint; begin anew"
    )
    assert lost in said
    assert f"agentfly train --resume runs/{folder.path.name}" in said


def test_a_killed_run_is_shown_as_stale(start: Start, agentfly: Run, workspace: Path) -> None:
    process = start("train", "recipe.yaml", "train.steps=10000", "learner.options.pause=0.2")
    wait_for(begun(workspace), process)
    [row] = json.loads(agentfly("runs", "list", "--json").stdout)
    assert row["state"] == "running"
    process.kill()
    process.communicate()
    [row] = json.loads(agentfly("runs", "list", "--json").stdout)
    assert row["state"] == "running (stale)"
