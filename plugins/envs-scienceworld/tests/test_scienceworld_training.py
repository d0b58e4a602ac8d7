"""A few updates of the tiny model, in processes of their own, and resumed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("agentfly_models_tiny", reason="the tiny model is not installed")

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.timeout(900), pytest.mark.usefixtures("java")]


def agentfly(folder: Path, *arguments: str) -> None:
    program = Path(sys.executable).with_name("agentfly")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_updates_are_finite_and_a_run_can_be_resumed(tmp_path: Path) -> None:
    agentfly(tmp_path, "train", "scienceworld:smoke", "train.steps=1", "evaluation.after=false")
    (run,) = (tmp_path / "runs").iterdir()
    agentfly(tmp_path, "train", "--resume", str(run), "train.steps=3")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(math.isfinite(v) for row in rows for v in row.values() if isinstance(v, float))
    assert all(row["chains/unscored"] == 0 for row in rows)
    assert any(row.get("optim/grad_norm", 0.0) > 0 for row in rows)
    assert min(row["reward/mean"] for row in rows) < 0  # it babbles, and each babble costs


@pytest.mark.slow
def test_demonstrations_are_learned_from(tmp_path: Path) -> None:
    agentfly(tmp_path, "scienceworld", "demos", "--output", "demos.jsonl", "--task", "7-1", "--limit", "2")
    agentfly(tmp_path, "sft", "scienceworld:smoke", "sft.data=demos.jsonl", "agent.name=tool-calling")
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "metrics.jsonl").read_text().count("\n") == 2
