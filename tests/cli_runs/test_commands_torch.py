"""The commands with a real model, backend and learner, all of them very small."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agentfly_core.runs import RunFolder, read_trajectories

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]

SMALL = (
    "learner=local",
    "algorithm=grpo",
    "rollout={backend: hf, max_tokens_per_turn: 6}",
    "agent.max_turns=2",
    "rewards=[{name: short, weight: 1.0}]",
    "train={steps: 2, tasks_per_step: 2, chains_per_task: 2, optimizer: {lr: 1e-3}}",
    "evaluation={tasks: 3, modes: [sampled, greedy]}",
    "run.checkpoint_every=1",
)


@pytest.fixture
def model(workspace: Path) -> Path:
    """A random Qwen2 beside the workspace's tokenizer."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=264,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(workspace / "model")
    return workspace / "model"


def test_train_resume_eval_and_run(agentfly: Run, workspace: Path, model: Path) -> None:
    trained = agentfly("train", "recipe.yaml", *SMALL, "--json")
    assert trained.exit_code == 0, (trained.output, trained.exception)
    said = json.loads(trained.stdout)
    folder = RunFolder.open(said["run"])
    assert (said["state"], said["step"]) == ("finished", 2)
    assert [(row["step"], row["mode"]) for row in said["evaluation"]] == [
        (0, "sampled"),
        (0, "greedy"),
        (2, "sampled"),
        (2, "greedy"),
    ]
    chains = list(read_trajectories(folder.path))
    assert sorted((t.split, t.task.id) for t in chains if t.split == "train")[0][0] == "train"
    assert len([t for t in chains if t.split == "train"]) == 2 * 2 * 2
    assert all(t.sampled_tokens > 0 for t in chains)

    more = agentfly("train", "train.steps=3", "--resume", "demo", "--json")
    assert more.exit_code == 0, (more.output, more.exception)
    assert [row["step"] for row in folder.metrics.read()] == [0, 1, 2, 3]

    evaluated = agentfly("eval", "--run", "demo", "--json")
    assert evaluated.exit_code == 0, (evaluated.output, evaluated.exception)
    assert json.loads(evaluated.stdout)["model"] == str(folder.model_path)

    answered = agentfly("run", "recipe.yaml", "hi", *SMALL, "--run", "demo", "--json")
    assert answered.exit_code == 0, (answered.output, answered.exception)
    assert json.loads(answered.stdout)[0]["turns"] >= 1


def test_six_deterministic_steps_are_three_and_three_more(agentfly: Run, workspace: Path, model: Path) -> None:
    options = (*SMALL, "deterministic=true", "run.checkpoint_every=3", "rollout.temperature=0.9")
    for root, steps in (("whole", 6), ("parted", 3)):
        result = agentfly("train", "recipe.yaml", *options, f"run.root={root}", f"train.steps={steps}")
        assert result.exit_code == 0, (result.output, result.exception)
    more = agentfly("train", "train.steps=6", "--resume", str(next((workspace / "parted").iterdir())))
    assert more.exit_code == 0, (more.output, more.exception)

    whole, parted = (RunFolder.open(next((workspace / root).iterdir())) for root in ("whole", "parted"))
    assert [row["step"] for row in parted.metrics.read()] == list(range(7))
    for a, b in zip(whole.metrics.read(), parted.metrics.read(), strict=True):
        evaluated_twice = {name for name in b if name.startswith("eval/") and b["step"] == 3}
        same = [name for name in b if not name.endswith(("seconds", "per_second")) and name not in evaluated_twice]
        assert [a[name] for name in same] == [b[name] for name in same]
        assert a.get("logp/max_abs_diff", 0.0) < 1e-4
    weights = [transformers.AutoModelForCausalLM.from_pretrained(f.model_path).state_dict() for f in (whole, parted)]
    before = transformers.AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in before)
    assert not all(torch.equal(weights[0][name], before[name]) for name in before)


def test_sft_writes_a_model(agentfly: Run, workspace: Path, model: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    (workspace / "talk.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
    result = agentfly(
        "sft", "recipe.yaml", "sft={data: talk.jsonl, steps: 3, batch_size: 2}", "--output", "trained", "--json"
    )
    assert result.exit_code == 0, (result.output, result.exception)
    said = json.loads(result.stdout)
    assert (said["state"], said["step"], said["model"]) == ("finished", 3, str(workspace / "trained"))
    assert "loss" in result.stderr
    weights = transformers.AutoModelForCausalLM.from_pretrained(workspace / "trained").state_dict()
    before = transformers.AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert any(not torch.equal(weights[name], before[name]) for name in before)
    assert (workspace / "trained" / "tokenizer.json").is_file()


def test_a_stopped_sft_says_how_far_it_came(start: Start, workspace: Path, model: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    (workspace / "talk.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
    process = start("sft", "recipe.yaml", "sft={data: talk.jsonl, steps: 100000, batch_size: 2}")
    assert process.stderr is not None
    while "step 1/" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    [path] = (workspace / "runs").iterdir()
    folder = RunFolder.open(path)
    assert folder.model_path.is_dir()
    assert f"stopped after {folder.status().step} of 100000 steps" in said
