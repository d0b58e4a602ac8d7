"""``check_algorithm`` finds what is wrong with algorithms; the good ones are checked beside their own tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.group import GRPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce  # noqa: E402
from agentfly_core.testing import check_algorithm  # noqa: E402
from agentfly_core.types import AdvantageOutput, LossOutput, Needs  # noqa: E402

NOTHING = Needs()


@dataclass(frozen=True)
class MeanBaseline:
    """Reward minus the batch's mean: an algorithm by hand, good unless a subclass spoils it."""

    name: str = "mean"
    needs: Needs = NOTHING

    def advantages(self, batch):
        scored = batch.scored
        mean = batch.rewards[scored].mean()
        chains = torch.where(scored, batch.rewards - mean, 0.0)
        return AdvantageOutput(torch.where(batch.mask, chains[batch.chain.clamp(min=0)].unsqueeze(1), 0.0))

    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, token_count, scale=1.0, **counts):
        loss = -(torch.where(mask, logp, 0.0) * advantages).sum() / max(token_count, 1)
        return LossOutput(loss * scale)


def test_good_algorithms_pass():
    check_algorithm(MeanBaseline())
    check_algorithm(GRPO())


def spoiled(text, found, **members):
    with found(text):
        check_algorithm(type("Broken", (MeanBaseline,), members)())


def test_what_is_no_algorithm(found):
    with found("it lacks name, needs, advantages, policy_loss"):
        check_algorithm(object())  # type: ignore[arg-type]
    spoiled(
        "they are {'groups': True}", found, __init__=lambda self: object.__setattr__(self, "needs", {"groups": True})
    )


def test_statistics_over_rows(found):
    def advantages(self, batch):
        rewards = torch.where(batch.scored, batch.rewards, 0.0)[batch.chain.clamp(min=0)]
        return AdvantageOutput(torch.where(batch.mask, (rewards - rewards.mean()).unsqueeze(1), 0.0))

    spoiled("padding changes the advantages", found, advantages=advantages)
    spoiled("a chain without a score changes the advantages of others", found, advantages=advantages)


def test_statistics_over_segments(found):
    def advantages(self, batch):
        rows = (batch.chain >= 0) & batch.scored[batch.chain.clamp(min=0)] & batch.mask.any(1)
        rewards = torch.where(rows, batch.rewards[batch.chain.clamp(min=0)], 0.0)
        mean = rewards.sum() / rows.sum().clamp(min=1)
        return AdvantageOutput(torch.where(batch.mask, (rewards - mean).unsqueeze(1), 0.0))

    spoiled("cutting chains into segments changes the advantages", found, advantages=advantages)


def test_order(found):
    def advantages(self, batch):
        weights = torch.arange(1.0, len(batch.rewards) + 1)
        chains = torch.where(batch.scored, batch.rewards, 0.0) * weights
        return AdvantageOutput(torch.where(batch.mask, chains[batch.chain.clamp(min=0)].unsqueeze(1), 0.0))

    spoiled("the order of chains changes the advantages", found, advantages=advantages)


def test_division_by_the_rows_at_hand(found):
    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, scale=1.0, **counts):
        loss = -(torch.where(mask, logp, 0.0) * advantages).sum() / mask.sum().clamp(min=1)
        return LossOutput(loss * scale)

    spoiled("the gradients of micro-batches do not add up", found, policy_loss=policy_loss)


def test_a_loss_that_forgets_the_scale(found):
    def policy_loss(self, *tensors, scale=1.0, **counts):
        return MeanBaseline.policy_loss(self, *tensors, **counts)

    spoiled("`scale` does not multiply the gradient", found, policy_loss=policy_loss)


def test_a_gradient_off_the_mask(found):
    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, token_count, scale=1.0, **counts):
        return LossOutput(-(logp * (advantages + 1)).sum() / max(token_count, 1) * scale)

    spoiled("tokens that were not sampled have a gradient", found, policy_loss=policy_loss)


def test_garbage_that_overflows(found):
    def policy_loss(self, logp, old_logp, rollout_logp, advantages, mask, *, token_count, scale=1.0, **counts):
        ratio = torch.exp(logp * torch.where(mask, 1.0, 1e3))
        return LossOutput(-(ratio * advantages * mask).sum() / max(token_count, 1) * scale)

    spoiled("the gradient is not finite", found, policy_loss=policy_loss)


def test_the_wrong_sign(found):
    def policy_loss(self, *tensors, **counts):
        return LossOutput(-MeanBaseline.policy_loss(self, *tensors, **counts).loss)

    spoiled("the loss grows where tokens with positive advantage grow likelier", found, policy_loss=policy_loss)


def test_a_loss_without_a_graph(found):
    def policy_loss(self, *tensors, **counts):
        return LossOutput(MeanBaseline.policy_loss(self, *tensors, **counts).loss.detach())

    spoiled("it must be a LossOutput with a scalar that has a graph", found, policy_loss=policy_loss)


def test_equal_groups(found):
    def advantages(self, batch):
        chains = torch.where(batch.scored, batch.rewards, 0.0)
        return AdvantageOutput(torch.where(batch.mask, chains[batch.chain.clamp(min=0)].unsqueeze(1), 0.0))

    spoiled("all scored the same have advantages", found, advantages=advantages, needs=Needs(groups=True),
            __init__=lambda self: object.__setattr__(self, "needs", Needs(groups=True)))  # fmt: skip


def test_inputs_that_are_not_declared(found):
    class Greedy(Reinforce):
        def advantages(self, batch):
            out = super().advantages(batch)
            return replace(out, advantages=torch.where(batch.mask, out.advantages - batch.values, 0.0))

    with found("it raised TypeError") as caught:
        check_algorithm(Greedy())
    assert "declare in `needs` what it reads" in str(caught.value)


def test_advantages_off_the_mask_and_of_another_shape(found):
    def everywhere(self, batch):
        return AdvantageOutput(torch.ones(batch.mask.shape, dtype=torch.float64))

    def chains(self, batch):
        return AdvantageOutput(torch.where(batch.scored, batch.rewards, 0.0))

    spoiled("advantages are not 0 off the mask", found, advantages=everywhere)
    spoiled("for a mask of (6, 9)", found, advantages=chains)
    spoiled("it returned tensor(", found, advantages=lambda self, batch: batch.rewards)


def test_a_batch_that_is_changed(found):
    def advantages(self, batch):
        batch.rewards[~batch.scored] = 0.0
        return MeanBaseline.advantages(self, batch)

    spoiled("it changed the batch", found, advantages=advantages)


def test_a_division_by_nothing(found):
    def advantages(self, batch):
        mean = batch.rewards[batch.scored].mean()
        return AdvantageOutput(torch.where(batch.mask, 1.0, 0.0 * mean))

    spoiled("advantages or gradients are not 0 where no chain is scored", found, advantages=advantages)
