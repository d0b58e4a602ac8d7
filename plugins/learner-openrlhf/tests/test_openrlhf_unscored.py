"""An optimizer step in which no chain is scored: OpenRLHF divides by the number of tokens all the same."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest

torch = pytest.importorskip("torch")

from agentfly_learner_openrlhf.trainer import counts  # noqa: E402
from agentfly_learner_openrlhf.trainer.loss import AlgorithmLoss, never_without_tokens  # noqa: E402
from agentfly_learner_openrlhf.trainer.samples import REAL  # noqa: E402

from agentfly_core.algorithms.group import GRPO  # noqa: E402

pytestmark = pytest.mark.torch

STRATEGY = SimpleNamespace(ds_device_mesh=None)


@pytest.fixture
def package() -> Path:
    found = importlib.util.find_spec("openrlhf")
    if found is None or found.origin is None:
        pytest.skip("openrlhf is not installed: pip install --no-deps openrlhf==0.11.2")
    return Path(found.origin).parent


@pytest.fixture
def upstream(package: Path) -> ModuleType:
    """OpenRLHF's denominators with ours around them; importing the package would need Ray and vLLM."""
    spec = importlib.util.spec_from_file_location("openrlhf_loss_utils", package / "utils" / "loss_utils.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counts.replace_in(module)
    return module


@pytest.fixture
def aggregate_loss(package: Path) -> Any:
    """What OpenRLHF sums each of its own losses with: KL, entropy, the critic's."""
    tree = ast.parse((package / "models" / "loss.py").read_text(encoding="utf-8"))
    [function] = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "aggregate_loss"]
    names: dict[str, Any] = {"torch": torch, "Optional": Optional}
    exec(compile(ast.Module([function], []), "loss.py", "exec"), names)
    return names["aggregate_loss"]


def micro_batches(*masks: list[list[int]]) -> list[Any]:
    return [SimpleNamespace(action_mask=torch.tensor(m), info={REAL: torch.ones(len(m))}) for m in masks]


@pytest.mark.parametrize("by_token", [True, False])
def test_without_a_scored_chain_there_is_no_gradient(
    by_token: bool, upstream: ModuleType, aggregate_loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "sum_over_ranks", lambda strategy, numbers: list(numbers))
    loss = AlgorithmLoss(GRPO())
    iterate = counts.with_counts(upstream.iter_grad_accum_global_norm, loss)
    logp = torch.full((2, 3), -1.0, requires_grad=True)
    seen = 0
    for experience, info in iterate(
        iter(micro_batches([[0, 0, 0]] * 2, [[0, 0, 0]] * 2)), STRATEGY, 2, lambda e: e.action_mask
    ):
        policy, *_ = loss(logp, logp.detach(), torch.zeros(2, 3), experience.action_mask, **info)
        kl = aggregate_loss((logp + 2).square(), experience.action_mask, token_level_loss=by_token, **info)
        (policy + 0.1 * kl).backward()
        seen += 1
    assert seen == 2
    assert logp.grad.tolist() == [[0.0] * 3] * 2


def test_denominators_of_other_steps_stay_as_they_are(upstream: ModuleType) -> None:
    found = upstream.iter_grad_accum_global_norm(
        iter(micro_batches([[1, 0, 0]], [[0, 0, 0]], [[0, 0, 0]], [[0, 1, 1]])), STRATEGY, 2, lambda e: e.action_mask
    )
    numbers = [(float(info["batch_num_tokens"]), float(info["global_batch_size"])) for _, info in found]
    assert numbers == [(0.5, 0.5), (0.5, 0.5), (1.0, 0.5), (1.0, 0.5)]


@pytest.mark.parametrize(("mask", "expected"), [([[0, 0]], (1.0, 1.0)), ([[1, 1], [0, 1], [0, 0]], (3.0, 2.0))])
def test_the_same_where_they_are_looked_up(
    mask: list[list[int]], expected: tuple[float, float], upstream: ModuleType
) -> None:
    info = upstream.get_loss_batch_info(STRATEGY, torch.tensor(mask))
    assert (float(info["batch_num_tokens"]), float(info["global_batch_size"]), info["dp_size"]) == (*expected, 1)


def test_averages_over_micro_batches_are_divided_by_something() -> None:
    step = never_without_tokens(lambda self, tokens: {"num_samples": 2.0, "num_action_tokens": tokens})
    assert step(None, 5.0) == {"num_samples": 2.0, "num_action_tokens": 5.0}
    assert 0 < step(None, 0.0)["num_action_tokens"] < 1e-5
