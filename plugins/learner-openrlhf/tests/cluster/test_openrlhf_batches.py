"""Data that fills no whole number of batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

REWARD = """
from agentfly_core import reward

@reward
def numbered(context):
    return float(context.chain_index)
"""


def test_two_ranks_and_seven_tasks_in_batches_of_four(agentfly: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "numbered.py").write_text(REWARD)
    lines = [json.dumps({"id": f"t{n}", "prompt": f"What is {n} + 1?"}) for n in range(7)]
    (tmp_path / "seven.jsonl").write_text("\n".join(lines) + "\n")
    run = agentfly(
        "tiny:calculator",
        # All seven tasks pass the filter, and there are no more to fill the second batch with.
        options={"gpus_per_node": 3, "engines": 1, "filter_flat_groups": True, "filter_reserve": 0.875},
        plugins=[str(tmp_path / "numbered.py")],
        rewards=["numbered"],
        data={"train": str(tmp_path / "seven.jsonl"), "shuffle": False},
        train__steps=2,
        train__tasks_per_step=4,
        train__chains_per_task=4,
        run__checkpoint_every=0,
        evaluation={"before": False, "after": False},
    )
    assert run.wait() == 0, run.said()
    assert run.processes() == {}
    metrics = run.metrics()
    assert [(row["step"], row["optim/steps"], row["group/zero_variance"]) for row in metrics] == [(1, 1, 0), (2, 1, 0)]
    # Every pass over the data begins a batch of its own, so that no task is twice in one.
    assert Counter(t.group for t in run.chains()) == {
        **{f"step-1/t{n}": 4 for n in range(4)},
        **{f"step-2/t{n}": 4 for n in range(3)},
    }
    tokens = {
        step: sum(t.sampled_tokens for t in run.chains() if t.group.startswith(f"step-{step}/")) for step in (1, 2)
    }
    assert tokens == {step: _trained_tokens(run.dumps, step) for step in (1, 2)}
    [(step, checkpoint)] = run.folder.checkpoints.all()
    assert step == 2
    assert _optimizer_steps(checkpoint) == 2


def _trained_tokens(dumps: Path, step: int) -> int:
    """Tokens under the mask in all batches of a step, on both ranks; each rank has 8 rows."""
    import torch

    batches = [torch.load(file) for rank in (0, 1) for file in dumps.glob(f"batch-{rank}-*.pt")]
    found = [b for b in batches if b["optimizer_steps"] == step - 1]
    assert sum(b["sequences"].shape[0] for b in found) == 16
    return int(sum(b["action_mask"].sum() for b in found))


def _optimizer_steps(checkpoint: Path) -> int:
    """As DeepSpeed counted them."""
    import torch

    [file] = checkpoint.glob("trainer/_actor/global_step*/mp_rank_00_model_states.pt")
    count: int = torch.load(file, weights_only=False)["global_steps"]
    return count
