"""Two steps of everything else (``nox -s openrlhf-full``)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SMALL = {
    "train__steps": 2,
    "train__tasks_per_step": 4,
    "train__chains_per_task": 4,
    "run__checkpoint_every": 0,
    "evaluation": {"before": False, "after": False},
}

PLUGIN = """
from dataclasses import dataclass
from typing import Any, ClassVar

from agentfly_core.hookspecs import hookimpl
from agentfly_core.types import AdvantageOutput, Needs


@hookimpl
def register_algorithms(register):
    register(Signed, name="signed")


@dataclass(frozen=True)
class Signed:
    name: ClassVar[str] = "signed"
    needs: ClassVar[Needs] = Needs()

    def advantages(self, batch):
        import torch

        sign = torch.where(batch.scored, batch.rewards - 0.5, 0.0).sign()
        advantages = torch.where(batch.mask, sign[batch.chain].unsqueeze(1), 0.0)
        return AdvantageOutput(advantages, metrics={"signed/mean": float(sign.mean())})

    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, token_count, scale=1.0, **unused):
        import torch
        from agentfly_core.types import LossOutput

        loss = torch.where(mask, -advantages * logp, 0.0).sum() / token_count
        return LossOutput(scale * loss, {"signed/tokens": mask.sum()})
"""

ALGORITHMS = {
    "grpo": ({"name": "grpo"}, {}),
    "reinforce++": ({"name": "reinforce++"}, {}),
    "rloo": ({"name": "rloo", "options": {"correction": "tis"}}, {}),
    "ppo with OpenRLHF's critic": ({"name": "ppo"}, {"gpus_per_node": 3, "engines": 1}),
    "turn-level credit": ({"name": "mt-ppo", "options": {"baseline": "group"}}, {}),
    "OpenRLHF's own": ({"name": "grpo"}, {"algo.advantage.estimator": "reinforce_baseline"}),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms(name: str, agentfly: Callable[..., Any]) -> None:
    algorithm, options = ALGORITHMS[name]
    run = agentfly("tiny:calculator", options={"gpus_per_node": 2, **options}, algorithm=algorithm, **SMALL)
    metrics = finished(run)
    if algorithm["name"] == "ppo":
        assert all(row["critic/grad_norm"] > 0 for row in metrics)


def test_an_algorithm_of_a_plugin(agentfly: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLUGIN)
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 2},
        plugins=[str(tmp_path / "own.py")],
        algorithm={"name": "signed"},
        **SMALL,
    )
    for row in finished(run):
        assert row["signed/tokens"] == 1.0
        assert row["signed/mean"] == pytest.approx(2 * row["reward/mean"] - 1)


def test_async_with_partial_rollout(agentfly: Callable[..., Any]) -> None:
    options = {"gpus_per_node": 3, "engines": 2, "async": True, "partial_rollout": True}
    run = agentfly("tiny:calculator", options=options, **{**SMALL, "train__steps": 4})
    finished(run, steps=4)
    turns = [turn for chain in run.chains() for turn in chain.turns]
    assert all(turn.weight_version <= turn.last_weight_version for turn in turns)
    assert len({file.name.split(".")[1] for file in run.folder.trajectories.path.iterdir()}) == 2


OUTAGE = """
from agentfly_core import reward

@reward
def outage(context):
    return float("nan") if context.task_id in ("t0", "t1") else float(context.chain_index)
"""


def test_a_step_without_a_scored_chain(agentfly: Callable[..., Any], tmp_path: Path) -> None:
    """As when all sandboxes are out of order: nothing is learned, and the next step goes on."""
    from safetensors.torch import load_file

    (tmp_path / "outage.py").write_text(OUTAGE)
    lines = [json.dumps({"id": f"t{n}", "prompt": f"What is {n} + 1?"}) for n in range(4)]
    (tmp_path / "four.jsonl").write_text("\n".join(lines) + "\n")
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 3, "engines": 1},
        plugins=[str(tmp_path / "outage.py")],
        rewards=["outage"],
        data={"train": str(tmp_path / "four.jsonl"), "shuffle": False},
        train__kl={"coef": 0.01, "kind": "k2"},
        train__micro_batch_tokens=1,
        **{**SMALL, "train__tasks_per_step": 2},
    )
    first, second = finished(run)
    assert (first["chains/unscored"], second["chains/unscored"]) == (1, 0)
    assert (first["loss/policy"], first["optim/grad_norm"], first["kl/openrlhf"]) == (0, 0, 0)
    assert second["optim/grad_norm"] > 0
    assert all(weight.isfinite().all() for weight in load_file(run.folder.model_path / "model.safetensors").values())


def test_a_used_up_reserve_of_tasks(agentfly: Callable[..., Any], tmp_path: Path) -> None:
    """Twelve tasks for two batches of four, of which the filter replaces six."""
    (tmp_path / "flat.py").write_text(OUTAGE.replace('("t0", "t1")', 'map("t{}".format, (0, 2, 4, 6, 8, 10))'))
    lines = [json.dumps({"id": f"t{n}", "prompt": f"What is {n} + 1?"}) for n in range(12)]
    (tmp_path / "twelve.jsonl").write_text("\n".join(lines) + "\n")
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 2, "filter_flat_groups": True, "filter_reserve": 1.0},
        plugins=[str(tmp_path / "flat.py")],
        rewards=["outage"],
        data={"train": str(tmp_path / "twelve.jsonl"), "shuffle": False},
        **{**SMALL, "train__steps": 3},
    )
    assert run.wait() == 2, run.said()
    assert "learner.options.filter_reserve: the tasks at hand were used up after step 2 of 3" in run.said()
    assert run.processes() == {}
    assert run.folder.status().state == "failed"
    assert run.folder.checkpoints.latest()[0] == 2
    assert (run.folder.model_path / "model.safetensors").exists()


def test_zero_3_with_two_ranks_and_a_reference(agentfly: Callable[..., Any]) -> None:
    options = {"gpus_per_node": 5, "engines": 1, "zero_stage": 3}
    run = agentfly("tiny:calculator", options=options, gpus=5, train__kl={"coef": 0.01, "kind": "k2"}, **SMALL)
    metrics = finished(run)
    assert metrics[0]["kl/openrlhf"] == pytest.approx(0, abs=1e-6)
    assert metrics[1]["kl/openrlhf"] > 0


@pytest.fixture
def redis_url() -> Iterator[str]:
    """A Redis server of this test's own."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server")
    with tempfile.TemporaryDirectory(prefix="redis") as folder:  # short: a socket's path has a limit
        path = f"{folder}/socket"
        arguments = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        server = subprocess.Popen(["redis-server", *arguments], stdout=subprocess.DEVNULL)
        yield f"unix://{path}"
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize("counter", ["the run's hub", "redis"])
def test_the_text_world_with_shared_capacity(
    counter: str, agentfly: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    """Two rollout actors, three worlds in processes of their own over both of them."""
    redis = {} if counter != "redis" else {"resources__coordinator": request.getfixturevalue("redis_url")}
    run = agentfly(
        "tiny:rooms",
        options={"gpus_per_node": 3, "engines": 2},
        **redis,
        environment={"name": "rooms", "isolation": "worker", "capacity": 3, "options": {"rooms": 2, "max_steps": 4}},
        agent__max_turns=4,
        **SMALL,
    )
    assert [row["resources/worker/leases"] for row in finished(run)] == [16, 16]
    assert all(chain.scored for chain in run.chains())
    assert all(turn.observation for chain in run.chains() for turn in chain.turns[:-1])


def test_evaluation_before_between_and_after(agentfly: Callable[..., Any]) -> None:
    evaluation = {"tasks": 6, "chains_per_task": 2, "every": 1, "modes": ["sampled", "greedy"]}
    run = agentfly("tiny:calculator", options={"gpus_per_node": 2}, **{**SMALL, "evaluation": evaluation})
    assert run.wait() == 0, run.said()
    rows = run.metrics()
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert all({"eval/sampled/success", "eval/greedy/success"} <= row.keys() for row in rows)
    assert len(run.chains("eval")) == 3 * (6 * 2 + 6)


def test_a_second_interrupt_ends_everything_at_once(agentfly: Callable[..., Any]) -> None:
    run = agentfly("tiny:calculator", options={"gpus_per_node": 2}, **{**SMALL, "train__steps": 1000})
    run.wait_for(lambda: run.metrics())
    for _ in range(2):
        os.killpg(run.process.pid, signal.SIGINT)
        time.sleep(2)
    assert run.wait(120) == 130, run.said()
    deadline = time.monotonic() + 120
    while run.processes():  # nobody is left to wait for them: they notice by themselves
        assert time.monotonic() < deadline, run.processes()
        time.sleep(0.5)


def test_a_submitted_job(agentfly: Callable[..., Any], head: str) -> None:
    run = agentfly("tiny:calculator", options={"gpus_per_node": 2, "submit": head}, **SMALL)
    finished(run)
    assert "step 2/2" in run.said()


def finished(run: Any, steps: int = 2) -> list[dict[str, float]]:
    """The metrics of a run that came to its end."""
    assert run.wait() == 0, run.said()
    assert run.processes() == {}
    metrics: list[dict[str, float]] = run.metrics()
    assert [(row["step"], row["optim/steps"]) for row in metrics] == [(n + 1, 1) for n in range(steps)]
    assert all(row["optim/grad_norm"] >= 0 for row in metrics)
    assert run.folder.status().state == "finished"
    assert json.loads((run.folder.model_path / "config.json").read_text())["model_type"] == "qwen2"
    return metrics
