"""Trajectories to tensors, and numbers about them."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.learners.collate import collate, turn_rewards  # noqa: E402
from agentfly_core.learners.diagnostics import group_metrics, rollout_metrics, sampler_gap  # noqa: E402
from agentfly_core.types import (  # noqa: E402
    AssistantTurn,
    ChainStatus,
    Segment,
    Task,
    ToolOutcome,
    ToolStatus,
    Trajectory,
    Turn,
    TurnSpan,
    UsageError,
)


def segment(ids: list[int], spans: list[tuple[int, int, int]], **more: Any) -> Segment:
    mask = [0] * len(ids)
    for _, start, end in spans:
        mask[start:end] = [1] * (end - start)
    logprobs = tuple(-float(i) if m else 0.0 for i, m in zip(ids, mask, strict=True))
    spans_ = tuple(TurnSpan(*s) for s in spans)
    return Segment(tuple(ids), tuple(mask), logprobs, spans[0][1], spans_, **more)


def chain(
    *segments: Segment, reward: float = 1.0, scored: bool = True, group: str = "g", turns: int = 1, **more: Any
) -> Trajectory:
    made = tuple(Turn(i, 0, (), "stop", AssistantTurn("")) for i in range(turns))
    made = more.pop("made", made)
    status = ChainStatus.COMPLETED
    return Trajectory(Task("t"), 0, group, "train", status, segments, made, reward=reward, scored=scored, **more)


def test_columns_are_shifted_by_one() -> None:
    data = collate([chain(segment([5, 6, 7, 8, 9], [(0, 2, 3), (1, 4, 5)]), turns=2)])
    assert data.token_ids.tolist() == [[5, 6, 7, 8, 9]]
    assert data.batch.mask.tolist() == [[False, True, False, True]]
    assert data.batch.turn_ids.tolist() == [[-1, 0, -1, 1]]
    assert data.batch.rollout_logp is not None
    assert data.batch.rollout_logp.tolist() == [[0.0, -7.0, 0.0, -9.0]]
    assert data.batch.turn_rewards == ((0.0, 1.0),)


def test_rows_are_segments_and_chains_without_any_still_count() -> None:
    two = chain(segment([1, 2], [(0, 1, 2)]), segment([1, 3, 4], [(1, 1, 3)]), group="a", turns=2)
    data = collate([two, chain(group="a", reward=0.0, turns=0), chain(segment([9, 9], [(0, 1, 2)]), group="b")])
    assert data.batch.chain.tolist() == [0, 0, 2]
    assert data.batch.group.tolist() == [0, 0, 1]
    assert data.rows_of_chains() == [[0, 1], [], [2]]
    assert data.token_ids.tolist() == [[1, 2, 0], [1, 3, 4], [9, 9, 0]]
    assert data.batch.turn_ids.tolist() == [[0, -1], [1, 1], [0, -1]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_leaves_the_chain_out(bad: float) -> None:
    one = segment([1, 2], [(0, 1, 2)])
    data = collate([chain(one, reward=bad), chain(one, turn_rewards=(bad,)), chain(one, scored=False), chain(one)])
    assert data.batch.scored.tolist() == [False, False, False, True]
    assert data.batch.mask.any(1).tolist() == [False, False, False, True]
    assert data.batch.turn_rewards[0] == (0.0,)


def test_components_anchors_and_images() -> None:
    turn = Turn(0, 0, (), "stop", AssistantTurn(""), anchor="kitchen")
    data = collate([chain(components={"a": 1.0}, made=(turn,)), chain(components={"b": 2.0}, turns=0)])
    assert data.batch.components["a"][0] == 1.0
    assert math.isnan(data.batch.components["a"][1])
    assert data.batch.anchors == (("kitchen",), ())
    assert collate([chain()]).batch.anchors is None
    with pytest.raises(UsageError, match="images"):
        collate([chain(segment([1, 2], [(0, 1, 2)], images=("x",)))])


def test_turn_rewards_default_to_the_score_on_the_last_turn() -> None:
    assert turn_rewards(chain(turns=3, reward=0.5)) == (0.0, 0.0, 0.5)
    assert turn_rewards(chain(turns=2, turn_rewards=(1.0, 2.0))) == (1.0, 2.0)
    assert turn_rewards(chain(turns=0)) == ()


def test_an_empty_batch_has_no_rows() -> None:
    data = collate([])
    assert data.token_ids.shape[0] == 0
    assert not data.batch.mask.any()


def test_rollout_metrics_by_hand() -> None:
    ok = ToolOutcome("look", ToolStatus.OK, "a wall")
    bad = ToolOutcome("look", ToolStatus.FAILED, "no")
    turn = Turn(0, 0, (), "stop", AssistantTurn(""), outcomes=(ok, bad, ok))
    one = segment([1, 2, 3], [(0, 1, 3)])
    chains = [
        chain(one, made=(turn,), reward=1.0, components={"x": 4.0}),
        chain(one, reward=0.0),
        chain(one, scored=False, reward=99.0),
    ]
    m = rollout_metrics(chains, 2.0, threshold=1.0)
    assert (m["reward/mean"], m["reward/std"], m["success"], m["reward/x"]) == (0.5, 0.5, 0.5, 4.0)
    assert m["tools/calls_per_chain"] == 1.0
    assert m["tools/failed_share"] == pytest.approx(1 / 3)
    assert m["chains/unscored"] == pytest.approx(1 / 3)
    assert m["chains/completed"] == 1.0
    assert (m["rollout/sampled_tokens"], m["rollout/tokens_per_second"]) == (6.0, 3.0)
    assert "reward/mean" not in rollout_metrics(chains[2:], 1.0, threshold=1.0)


def test_group_metrics_count_groups_that_teach_nothing() -> None:
    one = segment([1, 2], [(0, 1, 2)])
    rewards = {"same": [0.1, 0.1, 0.1], "alone": [1.0], "good": [0.0, 1.0, 0.0]}
    chains = [chain(one, group=g, reward=r) for g, rs in rewards.items() for r in rs]
    assert group_metrics(collate(chains), expected=3) == {
        "group/zero_variance": pytest.approx(2 / 3),
        "group/incomplete": 1.0,
    }


def test_sampler_gap_by_hand() -> None:
    mask = torch.tensor([[True, True, True, False]])
    logp = torch.tensor([[0.0, math.log(0.5), -1.0, 7.0]])
    rollout = torch.tensor([[0.0, 0.0, math.nan, 0.0]])
    gap = sampler_gap(logp, rollout, mask)
    assert gap["logp/max_abs_diff"] == pytest.approx(math.log(2))
    assert gap["logp/mean_abs_diff"] == pytest.approx(math.log(2) / 2)
    assert gap["logp/ess"] == pytest.approx(1.5**2 / (2 * 1.25))
    assert gap["logp/nonfinite"] == 1.0
    assert sampler_gap(logp, rollout, mask & False) == {"logp/nonfinite": 0.0}
