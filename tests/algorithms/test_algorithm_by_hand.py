"""Numbers worked out by hand, and options that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.group import GRPO, DrGRPO  # noqa: E402
from agentfly_core.algorithms.ppo import PPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce, ReinforcePlusPlus  # noqa: E402
from agentfly_core.algorithms.turns import MTPPO  # noqa: E402
from agentfly_core.types import TrainBatch, UsageError  # noqa: E402


def batch(turn_ids: list[list[int]], turn_rewards: list[tuple[float, ...]], **more: Any) -> TrainBatch:
    """Every position with a turn is sampled; one row a chain."""
    turns = torch.tensor(turn_ids)
    return TrainBatch(
        mask=turns >= 0,
        chain=torch.arange(len(turn_ids)),
        turn_ids=turns,
        rewards=torch.tensor([sum(r) for r in turn_rewards], dtype=torch.float64),
        scored=torch.ones(len(turn_ids), dtype=torch.bool),
        group=torch.zeros(len(turn_ids), dtype=torch.long),
        turn_rewards=tuple(turn_rewards),
        **more,
    )


def test_turn_rewards_are_discounted_over_sampled_tokens_only() -> None:
    b = batch([[0, 0, -1, -1, 1, 1]], [(1.0, 2.0)])
    # turn 1: 2 on its last token, 0.5 * 2 before; turn 0: 1 + 0.5 * 1 on its last token, half of that before
    advantages = MTPPO(gamma=0.5, whitening="none").advantages(b).advantages
    assert advantages.tolist() == [[0.75, 1.5, 0.0, 0.0, 1.0, 2.0]]


def test_the_reward_of_a_turn_without_tokens_goes_to_the_token_before_it() -> None:
    b = batch([[0, -1, 2, -1]], [(1.0, 10.0, 100.0, 1000.0)])
    advantages = MTPPO(whitening="none").advantages(b).advantages
    assert advantages.tolist() == [[1111.0, 0.0, 1100.0, 0.0]]


def test_turns_are_compared_with_the_same_turn_of_the_group() -> None:
    b = batch([[0, 1, 1], [0, 1, -1], [0, -1, -1]], [(1.0, 4.0), (0.0, 2.0), (3.0,)])
    # returns: turn 0 has 5, 2, 3 (mean 10/3), turn 1 has 4, 2 (mean 3)
    advantages = MTPPO(baseline="group", whitening="none").advantages(b).advantages
    third = 1 / 3
    expected = torch.tensor([[5 * third, 1, 1], [-4 * third, -1, 0], [-third, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(advantages, expected)


def test_a_turn_only_one_chain_reached_has_no_baseline() -> None:
    b = batch([[0, 1], [0, -1]], [(1.0, 1.0), (1.0,)])
    advantages = MTPPO(baseline="group", whitening="none").advantages(b).advantages
    assert advantages.tolist() == [[0.5, 0.0], [-0.5, 0.0]]


def test_discount_of_the_chain_reward() -> None:
    b = batch([[0, -1, 0, 0]], [(8.0,)])
    assert Reinforce(gamma=0.5).advantages(b).advantages.tolist() == [[2.0, 0.0, 4.0, 8.0]]


def test_group_of_two() -> None:
    b = batch([[0], [0]], [(1.0,), (0.0,)])
    std = math.sqrt(0.5)
    assert GRPO(eps=0.0).advantages(b).advantages.flatten().tolist() == pytest.approx([0.5 / std, -0.5 / std])
    assert DrGRPO().advantages(b).advantages.flatten().tolist() == [0.5, -0.5]


def test_a_metric_counts_clipped_tokens() -> None:
    mask = torch.ones(1, 4, dtype=torch.bool)
    logp = torch.tensor([[0.5, 1.5, 0.5, 1.5]]).log()
    advantages = torch.tensor([[-1.0, 1.0, 1.0, -1.0]])
    output = PPO().policy_loss(
        logp, torch.zeros(1, 4), None, advantages, mask, token_count=4, nonempty_count=1, chain_count=1
    )
    assert {k: int(v) for k, v in output.metrics.items()} == {"clip/low": 1, "clip/high": 1}
    # 0.8, -1.2 (both clipped), -0.5, 1.5
    assert float(output.loss) == pytest.approx((0.8 - 1.2 - 0.5 + 1.5) / 4)


def test_scale_multiplies_the_loss() -> None:
    mask, ones = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)
    losses = [
        Reinforce()
        .policy_loss(-ones, -ones, None, ones, mask, token_count=2, nonempty_count=1, chain_count=1, scale=scale)
        .loss
        for scale in (1.0, 3.0)
    ]
    assert [float(x) for x in losses] == [1.0, 3.0]


def test_what_is_missing_is_said() -> None:
    b = batch([[0]], [(1.0,)])
    with pytest.raises(UsageError, match="critic"):
        PPO().advantages(b)
    with pytest.raises(UsageError, match="reference"):
        ReinforcePlusPlus(kl_coef=0.1).advantages(b)
    mask = torch.ones(1, 1, dtype=torch.bool)
    zeros = torch.zeros(1, 1)
    with pytest.raises(UsageError, match="logprobs"):
        GRPO(correction="tis").policy_loss(
            zeros, zeros, None, zeros, mask, token_count=1, nonempty_count=1, chain_count=1
        )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"loss": "huber"}, "loss"),
        ({"clip_low": -0.1}, "clip_low"),
        ({"clip_high": "0.2"}, "clip_high"),
        ({"dual_clip": 1.0}, "dual_clip"),
        ({"aggregation": "constant"}, "constant_length"),
        ({"correction": "magic"}, "correction"),
        ({"eps": math.nan}, "eps"),
        ({"ddof": 2}, "ddof"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        GRPO(**options)


def test_needs() -> None:
    assert GRPO().needs.groups
    assert not ReinforcePlusPlus().needs.reference
    assert ReinforcePlusPlus(kl_coef=0.01).needs.reference
    assert ReinforcePlusPlus(kl_coef=0.01).needs.old_logp
    assert PPO().needs.critic
    assert MTPPO().needs.turns
    assert GRPO(correction="icepop").needs.rollout_logp
