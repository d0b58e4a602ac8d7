"""What must not change an algorithm's result: order, padding, unscored chains, segment borders, micro-batches.

The properties are those of ``check_algorithm``, which has its own tests with algorithms that break them.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.group import GRPO, RLOO, DrGRPO  # noqa: E402
from agentfly_core.algorithms.ppo import PPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce, ReinforcePlusPlus, ReinforcePlusPlusBaseline  # noqa: E402
from agentfly_core.algorithms.turns import MTPPO  # noqa: E402
from agentfly_core.testing import check_algorithm  # noqa: E402
from agentfly_core.testing.batches import counts, random_batch  # noqa: E402
from agentfly_core.types import Algorithm, TrainBatch  # noqa: E402

ALGORITHMS: dict[str, Algorithm] = {
    "grpo": GRPO(),
    "grpo-tis": GRPO(correction="tis"),
    "dr_grpo": DrGRPO(aggregation="constant", constant_length=16),
    "rloo": RLOO(),
    "reinforce": Reinforce(gamma=0.9),
    "reinforce++": ReinforcePlusPlus(kl_coef=0.1, gamma=0.95),
    "reinforce++-baseline": ReinforcePlusPlusBaseline(kl_coef=0.1),
    "ppo": PPO(gamma=0.95, dual_clip=3.0),
    "ppo-turn": PPO(gamma=0.95, clock="turn", rewards="turn"),
    "mt-ppo": MTPPO(gamma=0.9, baseline="group"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_must_not_matter_does_not(name: str, seed: int) -> None:
    check_algorithm(ALGORITHMS[name], seeds=[seed])


def gradient(algorithm: Algorithm, batch: TrainBatch) -> torch.Tensor:
    assert batch.old_logp is not None
    logp = (batch.old_logp + 0.2 * torch.sin(torch.arange(batch.old_logp.shape[1]))).requires_grad_()
    advantages = algorithm.advantages(batch).advantages
    algorithm.policy_loss(
        logp, batch.old_logp, batch.rollout_logp, advantages, batch.mask, **counts(batch)
    ).loss.backward()
    assert logp.grad is not None
    return logp.grad


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_logprob_the_engine_got_wrong_has_ratio_one(bad: float) -> None:
    batch, corrected = random_batch(5), ALGORITHMS["grpo-tis"]
    assert batch.rollout_logp is not None
    assert batch.old_logp is not None
    row, column = batch.mask.nonzero()[0].tolist()
    honest, broken = batch.rollout_logp.clone(), batch.rollout_logp.clone()
    honest[row, column], broken[row, column] = batch.old_logp[row, column], bad
    expected = gradient(corrected, dataclasses.replace(batch, rollout_logp=honest))
    torch.testing.assert_close(gradient(corrected, dataclasses.replace(batch, rollout_logp=broken)), expected)
    assert expected.any()
