"""The quickstart's recipe, trained by OpenRLHF instead of the local learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

STEPS, CHAINS = 30, 32


def test_the_quickstart_learns(agentfly: Callable[..., Any]) -> None:
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 2},
        train__steps=STEPS,
        train__tasks_per_step=CHAINS // 4,
        train__chains_per_task=4,
        train__micro_batch_tokens=CHAINS * 256,  # one micro-batch: on a CPU each costs DeepSpeed a second
        run__checkpoint_every=10,
        run__keep_checkpoints=3,
        evaluation__before=False,
        evaluation__tasks=50,
        evaluation__modes=["greedy"],
    )
    assert run.wait() == 0, run.said()
    assert run.processes() == {}

    status, metrics = run.folder.status(), run.metrics()
    assert (status.state, status.step) == ("finished", STEPS)
    assert [row["step"] for row in metrics] == list(range(1, STEPS + 1))
    assert all(row["optim/steps"] == 1 for row in metrics)
    rewards = [row["reward/mean"] for row in metrics]
    assert sum(rewards[-10:]) / 10 > sum(rewards[:3]) / 3 + 0.2
    print("rewards", *(f"{reward:.2f}" for reward in rewards), "greedy", metrics[-1]["eval/greedy/success"])
    assert [step for step, _ in run.folder.checkpoints.all()] == [10, 20, 30]

    chains = run.chains()
    assert Counter(t.group.split("/")[0] for t in chains) == {f"step-{n}": CHAINS for n in range(1, STEPS + 1)}
    assert any(len(t.turns) == 2 and t.reward == 1 for t in chains)
    for chain in chains:
        step = int(chain.group.split("/")[0].removeprefix("step-"))
        assert {(t.weight_version, t.last_weight_version) for t in chain.turns} == {(step - 1, step - 1)}
    _same_tokens(run, chains)
    for step, checkpoint in run.folder.checkpoints.all():
        _same_weights(checkpoint, run.dumps, step)
    _same_weights(run.folder.model_path, run.dumps, STEPS)


def _same_tokens(run: Any, chains: list[Any]) -> None:
    """What stands in the trajectory files is what OpenRLHF trained on: ids, masks, the engine's logprobs."""
    import torch

    trained: Counter[Any] = Counter()
    for file in sorted(run.dumps.glob("batch-*.pt")):
        batch = torch.load(file)
        step = batch["optimizer_steps"] + 1
        for row, mask in enumerate(batch["attention_mask"].bool()):
            length = int(mask.sum())
            assert mask[:length].all()
            trained[
                step,
                tuple(batch["sequences"][row, :length].tolist()),
                tuple(batch["action_mask"][row, : length - 1].tolist()),
                tuple(batch["rollout_log_probs"][row, : length - 1].tolist()),
            ] += 1
    written: Counter[Any] = Counter()
    for chain in chains:
        assert chain.scored
        [segment] = chain.segments
        logprobs = torch.tensor(segment.logprobs[1:], dtype=torch.float32)
        step = int(chain.group.split("/")[0].removeprefix("step-"))
        written[step, segment.token_ids, segment.action_mask[1:], tuple(logprobs.tolist())] += 1
    assert sum(trained.values()) == STEPS * CHAINS
    assert trained == written


def _same_weights(model: Path, dumps: Path, step: int) -> None:
    """The engine's weights after a step are those of the model saved after it."""
    import torch
    from safetensors.torch import load_file

    [file] = dumps.glob(f"engine-*-{step - 1}.pt")
    engine, saved = torch.load(file), load_file(model / "model.safetensors")
    fused = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    compared = 0
    for name, weight in engine.items():
        together = next((parts for whole, parts in fused.items() if whole in name), None)
        if together is None:
            expected = saved[name]
        else:
            whole = next(w for w in fused if w in name)
            expected = torch.cat([saved[name.replace(whole, part)] for part in together])
        assert torch.equal(weight, expected.to(weight.dtype)), name
        compared += expected.numel()
    assert compared == sum(w.numel() for n, w in saved.items() if n != "lm_head.weight" or n in engine)
