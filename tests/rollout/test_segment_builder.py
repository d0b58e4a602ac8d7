from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.rollout.segments import SegmentBuilder
from agentfly_core.types import Generation, TurnSpan


def generation(ids: list[int], *, logprob: float = -0.5) -> Generation:
    return Generation(tuple(ids), (logprob,) * len(ids), "stop")


def test_one_segment_by_hand() -> None:
    builder = SegmentBuilder()
    builder.open([1, 2, 3])
    builder.sampled(0, generation([10, 11]))
    builder.observed([20, 21])
    builder.sampled(1, generation([12], logprob=-2.0))
    builder.observed([22, 23])
    (segment,) = builder.finish()
    assert segment.token_ids == (1, 2, 3, 10, 11, 20, 21, 12)
    assert segment.action_mask == (0, 0, 0, 1, 1, 0, 0, 1)
    assert segment.logprobs == (0.0, 0.0, 0.0, -0.5, -0.5, 0.0, 0.0, -2.0)
    assert segment.prompt_len == 3
    assert segment.spans == (TurnSpan(0, 3, 5), TurnSpan(1, 7, 8))


def test_a_segment_in_which_nothing_was_sampled_is_not_kept() -> None:
    builder = SegmentBuilder()
    assert builder.finish() == ()
    builder.open([1, 2])
    assert builder.finish() == ()
    builder.sampled(0, generation([5]))
    builder.open([1, 2, 3])
    assert builder.index == 1
    assert [s.token_ids for s in builder.finish()] == [(1, 2, 5)]


def test_images_of_an_observation_that_is_not_kept_are_not_kept() -> None:
    builder = SegmentBuilder()
    builder.open([1], ["prompt image"])
    builder.sampled(0, generation([5]))
    builder.observed([2], ["seen"])
    assert builder.images == ["prompt image", "seen"]
    builder.sampled(1, generation([6]))
    builder.observed([3], ["unseen"])
    assert builder.finish()[0].images == ("prompt image", "seen")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_not_finite_is_refused(bad: float) -> None:
    builder = SegmentBuilder()
    builder.open([1])
    with pytest.raises(ValueError, match="not finite in turn 4"):
        builder.sampled(4, generation([5], logprob=bad))


IDS = st.lists(st.integers(0, 9), max_size=5)
STEPS = st.lists(st.tuples(st.sampled_from(["sampled", "observed", "open"]), IDS), max_size=20)


@given(IDS, STEPS)
def test_segments_are_what_was_sent_and_sampled(prompt: list[int], steps: list[tuple[str, list[int]]]) -> None:
    """Against a plain second account of the same steps."""
    builder = SegmentBuilder()
    builder.open(prompt)
    accounts: list[list[tuple[int, int]]] = [[(i, 0) for i in prompt]]
    sampled_in: set[int] = set()
    turn = 0
    for kind, ids in steps:
        if kind == "open":
            builder.open(ids)
            accounts.append([(i, 0) for i in ids])
        elif kind == "observed":
            builder.observed(ids)
            accounts[-1] += [(i, 0) for i in ids]
        else:
            builder.sampled(turn, generation(ids))
            accounts[-1] += [(i, 1) for i in ids]
            sampled_in.add(len(accounts) - 1)
            turn += 1
    segments = builder.finish()
    assert len(segments) == len(sampled_in)
    assert sum(len(s.spans) for s in segments) == turn
    for segment, number in zip(segments, sorted(sampled_in), strict=True):
        pairs = list(zip(segment.token_ids, segment.action_mask, strict=True))
        assert pairs == accounts[number][: len(pairs)]
        assert all(m == 0 for _, m in accounts[number][len(pairs) :])
        assert all((p == -0.5) == (m == 1) for p, m in zip(segment.logprobs, segment.action_mask, strict=True))
