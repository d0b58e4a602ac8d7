"""Splitting an optimizer step over ranks and micro-batches changes nothing: two real processes over gloo."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

RANK = """
import importlib.util, json, sys
from types import SimpleNamespace

import torch
from torch import distributed

source, rendezvous, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
spec = importlib.util.spec_from_file_location("openrlhf.utils.loss_utils", source)
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)
sys.modules["openrlhf.utils.loss_utils"] = upstream  # the package around it would need Ray and vLLM

from agentfly_core.algorithms.group import GRPO, DrGRPO
from agentfly_learner_openrlhf.trainer.counts import with_counts
from agentfly_learner_openrlhf.trainer.loss import AlgorithmLoss
from agentfly_learner_openrlhf.trainer.samples import REAL

distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
LENGTHS, REALS = [3, 1, 0, 2, 4, 2, 0, 1], [1, 1, 1, 1, 1, 1, 0, 1]  # chain 2 sampled nothing, row 6 is padding

def table(seed):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))

logp = (table(1) - 2).requires_grad_()
old, advantages = logp.detach() + 0.2 * table(2), table(3)
mask = torch.tensor([[t < n for t in range(4)] for n in LENGTHS])
found = {}
for name, algorithm in {
    "token_mean": GRPO(aggregation="token_mean"),
    "seq_mean_token_mean": GRPO(),
    "constant": DrGRPO(aggregation="constant", constant_length=8),
}.items():
    loss = AlgorithmLoss(algorithm)
    mine = [[4 * rank, 4 * rank + 1], [4 * rank + 2, 4 * rank + 3]]
    real = [{REAL: [torch.tensor(REALS[i]) for i in rows]} for rows in mine]
    batches = [SimpleNamespace(rows=r, action_mask=mask[r].long(), info=x) for r, x in zip(mine, real)]
    iterate = with_counts(upstream.iter_grad_accum_global_norm, loss)
    logp.grad = None
    for batch, info in iterate(iter(batches), SimpleNamespace(ds_device_mesh=None), 2, lambda b: b.action_mask):
        rows = batch.rows
        value, *_ = loss(logp[rows], old[rows], advantages[rows], action_mask=batch.action_mask, **info)
        (value / 2).backward()  # DeepSpeed's mean over accumulated micro-batches
    distributed.all_reduce(logp.grad)
    gradient = logp.grad / 2  # and over ranks
    total = torch.tensor(loss.take())
    distributed.all_reduce(total)
    whole = algorithm.policy_loss(
        logp, old, None, advantages, mask,
        token_count=sum(LENGTHS), nonempty_count=sum(n > 0 for n in LENGTHS), chain_count=sum(REALS),
    ).loss
    [expected] = torch.autograd.grad(whole, logp)
    found[name] = [float((gradient - expected).abs().max()), float(expected.abs().max()), float(total - whole)]
print(json.dumps(found), flush=True)
distributed.barrier()  # a rank that leaves early breaks off the other's connection
distributed.destroy_process_group()  # else gloo's threads may still run at exit, which aborts the process
"""


def test_two_ranks_of_two_micro_batches_are_one_batch(tmp_path: Path) -> None:
    package = importlib.util.find_spec("openrlhf")
    if package is None or package.origin is None:
        pytest.skip("openrlhf is not installed: pip install --no-deps openrlhf==0.11.2")
    source = Path(package.origin).parent / "utils" / "loss_utils.py"
    arguments = [sys.executable, "-c", RANK, str(source), str(tmp_path / "rendezvous")]
    ranks = [subprocess.Popen([*arguments, str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    said = [process.communicate(timeout=250)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    for text in said:
        found = json.loads(text)
        assert len(found) == 3
        for name, (difference, largest, loss_difference) in found.items():
            assert largest > 0.01, name
            assert difference < 1e-7, name
            assert abs(loss_difference) < 1e-6, name
