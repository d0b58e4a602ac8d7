"""What must not change an algorithm's result: order, padding, unscored chains, segment borders, micro-batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.group import GRPO, RLOO, DrGRPO  # noqa: E402
from agentfly_core.algorithms.ppo import PPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce, ReinforcePlusPlus, ReinforcePlusPlusBaseline  # noqa: E402
from agentfly_core.algorithms.turns import MTPPO  # noqa: E402
from agentfly_core.types import Algorithm, TrainBatch  # noqa: E402

ALGORITHMS: dict[str, Algorithm] = {
    "grpo": GRPO(),
    "dr_grpo": DrGRPO(aggregation="constant", constant_length=16),
    "rloo": RLOO(),
    "reinforce": Reinforce(gamma=0.9),
    "reinforce++": ReinforcePlusPlus(kl_coef=0.1, gamma=0.95),
    "reinforce++-baseline": ReinforcePlusPlusBaseline(kl_coef=0.1),
    "ppo": PPO(gamma=0.95, dual_clip=3.0),
    "ppo-turn": PPO(gamma=0.95, clock="turn", rewards="turn"),
    "mt-ppo": MTPPO(gamma=0.9, baseline="group"),
}
FLOATS = ("old_logp", "rollout_logp", "ref_logp", "values")
CORRECTED = GRPO(correction="tis")


def random_batch(seed: int, chains: int = 6, width: int = 9) -> TrainBatch:
    """One row a chain, random gaps and turns, garbage off the mask, a few chains unscored."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(chains, width, generator=g) < 0.6
    start = mask & ~torch.cat([torch.zeros(chains, 1, dtype=torch.bool), mask[:, :-1]], dim=1)
    turn_ids = torch.where(mask, start.long().cumsum(1) - 1, -1)
    scored = torch.rand(chains, generator=g) < 0.8
    rewards = torch.randint(0, 3, (chains,), generator=g).double()

    def floats() -> torch.Tensor:
        x = torch.randn(chains, width, generator=g, dtype=torch.float64)
        return torch.where(mask, x * 0.3 - 1, x * 1e4)

    return TrainBatch(
        mask=mask & scored.unsqueeze(1),
        chain=torch.arange(chains),
        turn_ids=turn_ids,
        rewards=torch.where(scored, rewards, torch.nan),
        scored=scored,
        group=torch.randint(0, 2, (chains,), generator=g),
        turn_rewards=tuple(tuple(torch.randn(width, generator=g).tolist()) for _ in range(chains)),
        **{name: floats() for name in FLOATS},
    )


def rows(batch: TrainBatch, index: list[int]) -> dict[str, Any]:
    names = ("mask", "turn_ids", *FLOATS)
    return {name: getattr(batch, name)[index] for name in names}


def permute(batch: TrainBatch, order: list[int]) -> TrainBatch:
    return dataclasses.replace(
        batch,
        rewards=batch.rewards[order],
        scored=batch.scored[order],
        group=batch.group[order] * 7 + 3,
        turn_rewards=tuple(batch.turn_rewards[i] for i in order),
        **rows(batch, order),
    )


def pad(batch: TrainBatch, more_rows: int, more_columns: int) -> TrainBatch:
    size, width = batch.mask.shape
    grown: dict[str, Any] = {}
    for name in ("mask", "turn_ids", *FLOATS):
        old = getattr(batch, name)
        fill = -1 if name == "turn_ids" else False if name == "mask" else 1e4
        new = torch.full((size + more_rows, width + more_columns), fill, dtype=old.dtype)
        new[:size, :width] = old
        grown[name] = new
    chain = torch.cat([batch.chain, torch.full((more_rows,), -1)])
    return dataclasses.replace(batch, chain=chain, **grown)


def split_rows(batch: TrainBatch, seed: int) -> tuple[TrainBatch, list[int], list[int]]:
    """Every chain cut at a random column into two rows; returns where the second one begins."""
    g = torch.Generator().manual_seed(seed)
    size, width = batch.mask.shape
    cuts = torch.randint(0, width + 1, (size,), generator=g).tolist()
    index = [i for i in range(size) for _ in range(2)]
    made = rows(batch, index)
    columns = torch.arange(width)
    for i, cut in enumerate(cuts):
        made["mask"][2 * i] &= columns < cut
        made["mask"][2 * i + 1] &= columns >= cut
    return dataclasses.replace(batch, chain=batch.chain[index], **made), index, cuts


def counts(batch: TrainBatch) -> dict[str, int]:
    sampled = torch.zeros(len(batch.rewards)).index_add(0, batch.chain.clamp(min=0), batch.mask.sum(1).float())
    return {
        "token_count": int(batch.mask.sum()),
        "nonempty_count": int((sampled > 0).sum()),
        "chain_count": int(batch.scored.sum()),
    }


def gradient(algorithm: Algorithm, batch: TrainBatch, parts: list[list[int]]) -> torch.Tensor:
    """Of the whole step's loss, accumulated over micro-batches of the given rows."""
    assert batch.old_logp is not None
    logp = (batch.old_logp + 0.2 * torch.sin(torch.arange(batch.old_logp.shape[1]))).requires_grad_()
    advantages = algorithm.advantages(batch).advantages
    for part in parts:
        rollout = None if batch.rollout_logp is None else batch.rollout_logp[part]
        algorithm.policy_loss(
            logp[part], batch.old_logp[part], rollout, advantages[part], batch.mask[part],
            chain=batch.chain[part], **counts(batch),
        ).loss.backward()  # fmt: skip
    assert logp.grad is not None
    return logp.grad


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


every = pytest.mark.parametrize("name", ALGORITHMS)
some = settings(max_examples=12, deadline=None)
seeds = st.integers(0, 10_000)


@every
@some
@given(seed=seeds)
def test_order_of_chains_does_not_matter(name: str, seed: int) -> None:
    batch = random_batch(seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed)).tolist()
    same(
        ALGORITHMS[name].advantages(permute(batch, order)).advantages,
        ALGORITHMS[name].advantages(batch).advantages[order],
    )


@every
@some
@given(seed=seeds, more_rows=st.integers(0, 3), more_columns=st.integers(0, 4))
def test_padding_does_not_matter(name: str, seed: int, more_rows: int, more_columns: int) -> None:
    batch, algorithm = random_batch(seed), ALGORITHMS[name]
    padded = pad(batch, more_rows, more_columns)
    size, width = batch.mask.shape
    advantages = algorithm.advantages(padded).advantages
    same(advantages[:size, :width], algorithm.advantages(batch).advantages)
    assert not advantages[~padded.mask].any()
    every_row = [list(range(size + more_rows))]
    grown = gradient(algorithm, padded, every_row)
    same(grown[:size, :width], gradient(algorithm, batch, [list(range(size))]))


@every
@some
@given(seed=seeds)
def test_an_unscored_chain_does_not_matter(name: str, seed: int) -> None:
    algorithm, batch = ALGORITHMS[name], random_batch(seed)
    scored = batch.scored.clone()
    scored[-1] = False
    mask = batch.mask & scored.unsqueeze(1)
    rewards = torch.where(scored, batch.rewards, torch.nan)
    with_it = dataclasses.replace(batch, scored=scored, mask=mask, rewards=rewards)
    without = dataclasses.replace(
        batch,
        chain=batch.chain[:-1],
        scored=scored[:-1],
        rewards=rewards[:-1],
        group=batch.group[:-1],
        turn_rewards=batch.turn_rewards[:-1],
        **{k: v[:-1] for k, v in rows(dataclasses.replace(batch, mask=mask), list(range(6))).items()},
    )
    same(algorithm.advantages(with_it).advantages[:-1], algorithm.advantages(without).advantages)
    same(gradient(algorithm, with_it, [list(range(6))])[:-1], gradient(algorithm, without, [list(range(5))]))


@every
@some
@given(seed=seeds)
def test_segments_count_as_one_chain(name: str, seed: int) -> None:
    algorithm, batch = ALGORITHMS[name], random_batch(seed)
    cut, index, _ = split_rows(batch, seed)
    whole = algorithm.advantages(batch).advantages
    same(algorithm.advantages(cut).advantages, torch.where(cut.mask, whole[index], 0.0))
    halves = gradient(algorithm, cut, [list(range(len(index)))])
    same(halves[0::2] + halves[1::2], gradient(algorithm, batch, [list(range(6))]))


@pytest.mark.parametrize("algorithm", [*ALGORITHMS.values(), CORRECTED], ids=lambda a: a.name)
@some
@given(seed=seeds)
def test_micro_batches_do_not_change_the_gradient(algorithm: Algorithm, seed: int) -> None:
    batch, _, _ = split_rows(random_batch(seed), seed)
    g = torch.Generator().manual_seed(seed)
    chains = torch.randperm(6, generator=g).tolist()
    parts = [[2 * i, 2 * i + 1] for i in chains[:3]] + [[r for i in chains[3:] for r in (2 * i, 2 * i + 1)]]
    same(gradient(algorithm, batch, parts), gradient(algorithm, batch, [list(range(12))]))


@every
def test_a_batch_without_scored_chains_gives_zeros(name: str) -> None:
    batch = random_batch(3)
    nothing = dataclasses.replace(
        batch,
        scored=torch.zeros(6, dtype=torch.bool),
        mask=torch.zeros_like(batch.mask),
        rewards=batch.rewards * torch.nan,
    )
    assert not ALGORITHMS[name].advantages(nothing).advantages.any()
    assert not gradient(ALGORITHMS[name], nothing, [list(range(6))]).any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_logprob_the_engine_got_wrong_has_ratio_one(bad: float) -> None:
    batch = random_batch(5)
    assert batch.rollout_logp is not None
    assert batch.old_logp is not None
    row, column = batch.mask.nonzero()[0].tolist()
    honest, broken = batch.rollout_logp.clone(), batch.rollout_logp.clone()
    honest[row, column], broken[row, column] = batch.old_logp[row, column], bad
    everything = [list(range(6))]
    expected = gradient(CORRECTED, dataclasses.replace(batch, rollout_logp=honest), everything)
    same(gradient(CORRECTED, dataclasses.replace(batch, rollout_logp=broken), everything), expected)
    assert expected.any()
