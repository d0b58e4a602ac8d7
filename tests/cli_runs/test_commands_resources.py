"""``agentfly resources``."""

from __future__ import annotations

import json
import os
import platform
import time

import pytest
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.resources.marks import RunMark


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTFLY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("AGENTFLY_REDIS_URL", raising=False)

    def invoke(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, ["resources", *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    return invoke


def write_status(folder, run_id: str) -> None:
    folder.mkdir(parents=True)
    kinds = {"worker": {"leased": 1, "idle": 2, "waiting": 1, "warm_minimum": 0, "failures": {"start": 3}}}
    status = {
        "run": run_id,
        "host": platform.node(),
        "pid": os.getpid(),
        "updated": time.time(),
        "refusal": "",
        "kinds": kinds,
        "leases": [
            {"kind": "worker", "what": "m:f", "owner": "chain-7", "since": time.time() - 60, "state": "held"},
        ],
        "waiting": [{"kind": "worker", "owner": "chain-8", "since": time.time()}],
    }
    (folder / "resources.json").write_text(json.dumps(status))


def test_status_shows_each_run_and_marks_those_that_are_gone(run, tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    assert "nothing is leased" in run("status", "--root", str(root))
    mark = RunMark("alive")
    mark.uses("worker")
    write_status(root / "one", "alive")
    write_status(root / "two", "crashed")
    (root / "three").mkdir()
    (root / "three" / "resources.json").write_text("{")
    text = run("status", "--root", str(root))
    assert "one  " in text
    assert "two (stale)" in text
    assert "chain-7" in text
    assert "chain-8" in text
    found = json.loads(run("status", "--root", str(root), "--json"))
    assert [(r["folder"], r["stale"]) for r in found["runs"]] == [("one", False), ("three", True), ("two", True)]
    assert found["runs"][0]["leases"][0]["owner"] == "chain-7"
    mark.remove()


def test_status_of_an_unreachable_coordinator_is_one_clear_error(run):
    pytest.importorskip("redis")
    assert "cannot be reached" in run("status", "--coordinator", "redis://:secret@127.0.0.1:1", code=2)
    assert "neither local nor redis" in run("status", "--coordinator", "http://x", code=2)


def test_sweep_says_how_many_it_ended(run):
    assert run("sweep").startswith("0 ended")
    assert json.loads(run("sweep", "--run", "nobody", "--json"))["ended"] == 0


def test_sweep_warns_before_it_offers_to_end_an_unknown_run(run, monkeypatch):
    async def unknown(providers):
        return {"r7": ["docker", "worker"]}

    monkeypatch.setattr("agentfly_core.resources.sweeping.unknown_runs", unknown)
    line = run("sweep").splitlines()[1]
    said, _, offered = line.partition("end it with: ")
    assert said.startswith("docker, worker of the unknown run r7: it may be at work for another user or host")
    assert offered == "agentfly resources sweep --run r7"
