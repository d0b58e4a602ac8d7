"""A run that loses a process on the cluster ends cleanly, goes on where it was saved, and stops when asked to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e


def test_a_killed_rollout_actor_ends_the_run_which_resumes_and_stops(agentfly: Callable[..., Any]) -> None:
    small = {"train__tasks_per_step": 4, "train__chains_per_task": 4, "evaluation__before": False}
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 2},
        train__steps=1000,
        run__checkpoint_every=1,
        evaluation__after=False,
        **small,
    )
    run.wait_for(lambda: (run.folder.checkpoints.latest() or (0,))[0] >= 2)
    before = run.processes()
    assert any("EngineCore" in command for command in before.values())
    [actor] = [pid for pid, command in before.items() if command.startswith("ray::RolloutRayActor")]
    os.kill(actor, signal.SIGKILL)
    killed = time.monotonic()
    assert run.wait(600) == 3, run.said()
    print(f"the command ended {time.monotonic() - killed:.1f} s after the kill")
    last = run.said().strip().splitlines()[-1]
    assert last.startswith("error: the run failed on the cluster: ActorDiedError"), last
    assert run.processes() == {}
    status = run.folder.status()
    assert status.state == "failed"
    assert "ActorDiedError" in status.error

    step, checkpoint = run.folder.checkpoints.latest()
    assert (checkpoint / "model.safetensors").exists()
    resumed = agentfly(resume=run)
    resumed.wait_for(lambda: run.metrics()[-1]["step"] >= step + 2)
    os.killpg(resumed.process.pid, signal.SIGINT)  # as Ctrl-C does
    assert resumed.wait() == 130, resumed.said()
    assert run.processes() == {}
    status = run.folder.status()
    assert status.state == "stopped"
    last = status.step
    assert last >= step + 2
    assert run.folder.checkpoints.latest()[0] == last
    assert (run.folder.model_path / "model.safetensors").exists()
    assert [row["step"] for row in run.metrics()] == list(range(1, last + 1))
    assert {t.turns[0].weight_version for t in run.chains() if t.group.startswith(f"step-{step + 1}/")} == {step}
    # The tasks went on where they were: step k has the recipe's tasks 4k-4 to 4k-1.
    wanted = {f"step-{k}/train-{4 * k - 4 + n}" for k in range(1, last + 1) for n in range(4)}
    assert {t.group for t in run.chains()} == wanted
