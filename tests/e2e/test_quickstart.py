"""The quickstart as a user runs it, with one seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.timeout(1200)]


def test_the_reward_rises_on_held_out_tasks(tmp_path: Path) -> None:
    agentfly = Path(sys.executable).with_name("agentfly")
    done = subprocess.run([agentfly, "train", "tiny:calculator"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name in done.stdout
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first, last = rows[0], rows[-1]
    assert last["step"] == 40
    assert first["eval/sampled/success"] < 0.3
    assert last["eval/sampled/success"] >= 0.75
    assert last["eval/greedy/success"] >= 0.9
    # What the engine says of its samples is what the learner says of them.
    assert max(r["logp/max_abs_diff"] for r in rows[1:]) <= 1e-4
