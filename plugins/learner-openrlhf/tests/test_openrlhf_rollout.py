"""What stands between OpenRLHF's rollout actors and the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentfly_learner_openrlhf.records import record
from agentfly_learner_openrlhf.rollout.weights import WeightClock
from agentfly_learner_openrlhf.rows import from_row, to_row
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.types import (
    AssistantTurn,
    ChainStatus,
    Generation,
    GenerationRequest,
    SamplingParams,
    Segment,
    Task,
    ToolOutcome,
    ToolStatus,
    Trajectory,
    Turn,
    TurnSpan,
    UsageError,
)

pytest.importorskip("torch")  # the core's learners need it

from agentfly_learner_openrlhf.rollout.backend import RolloutBackend
from agentfly_learner_openrlhf.rollout.groups import DROP, KEEP, Group, is_flat
from agentfly_learner_openrlhf.rollout.samples import to_sample

pytestmark = pytest.mark.torch


def chain(reward: float = 1.0, *, scored: bool = True, index: int = 0) -> Trajectory:
    """Two turns: ids 5 6 | 7 8 | 9 | 10."""
    outcome = ToolOutcome("search", ToolStatus.FAILED, "a long page", 1.5, call_id="c")
    turns = (
        Turn(0, 0, (7, 8), "stop", AssistantTurn("hm"), (outcome,), ({"role": "tool", "content": "x"},), anchor="s0"),
        Turn(1, 0, (10,), "length", AssistantTurn("so", cut=True), anchor="s1"),
    )
    segment = Segment(
        (5, 6, 7, 8, 9, 10),
        (0, 0, 1, 1, 0, 1),
        (0.0, 0.0, -0.1, -0.2, 0.0, -0.3),
        2,
        (TurnSpan(0, 2, 4), TurnSpan(1, 5, 6)),
    )
    return Trajectory(
        Task("t", ({"role": "user", "content": "?"},), {"answer": 3}),
        index,
        "step-1/t",
        "train",
        ChainStatus.COMPLETED,
        segments=(segment,),
        turns=turns,
        messages=({"role": "user", "content": "?"},),
        reward=reward if scored else 0.0,
        scored=scored,
        unscored_reason=None if scored else "no",
        components={"exact": reward},
        turn_rewards=(0.25, reward - 0.25),
        metrics={"pages": 2.0},
    )


def test_a_sample_is_the_trajectory_as_it_is() -> None:
    sample = to_sample(chain(), "t", score=KEEP)
    assert sample["observation_tokens"] == [5, 6, 7, 8, 9, 10]
    assert sample["action_ranges"] == [(2, 4), (5, 6)]
    assert sample["rollout_log_probs"] == [0.0, 0.0, -0.1, -0.2, 0.0, -0.3]
    assert (sample["prompt"], sample["reward"], sample["scores"], sample["truncated"]) == ("t", 1.0, 0.5, True)
    assert sample["extra_logs"] == {}


def test_an_unscored_chain_has_nothing_to_train_on() -> None:
    sample = to_sample(chain(scored=False), "t", score=KEEP)
    assert (sample["action_ranges"], sample["reward"]) == ([], 0.0)
    assert len(sample["observation_tokens"]) == len(sample["rollout_log_probs"]) == 6


def test_a_reward_that_is_no_number_counts_as_unscored() -> None:
    sample = to_sample(chain(float("nan")), "t", score=KEEP)
    assert (sample["action_ranges"], sample["reward"]) == ([], 0.0)


def test_a_chain_that_sampled_nothing_still_has_columns() -> None:
    nothing = Trajectory(Task("t"), 0, "g", "train", ChainStatus.ENVIRONMENT_ERROR)
    sample = to_sample(nothing, "t", score=KEEP)
    assert len(sample["observation_tokens"]) == len(sample["rollout_log_probs"]) == 2
    assert (sample["action_ranges"], sample["truncated"]) == ([], False)


def test_several_segments_cannot_be_one_sample() -> None:
    one = chain()
    two = Trajectory(one.task, 0, "g", "train", ChainStatus.COMPLETED, segments=one.segments * 2)
    with pytest.raises(ValueError, match="has 2 segments, not one"):
        to_sample(two, "t", score=KEEP)


def test_a_record_has_the_structure_and_no_texts() -> None:
    found = record(chain())
    assert found.segments == ((TurnSpan(0, 2, 4), TurnSpan(1, 5, 6)),)
    assert (found.sampled_tokens, found.reward, found.turn_rewards) == (3, 1.0, (0.25, 0.75))
    assert [turn.anchor for turn in found.turns] == ["s0", "s1"]
    assert [outcome.status for turn in found.turns for outcome in turn.outcomes] == [ToolStatus.FAILED]
    assert "long page" not in repr(found)
    assert "hm" not in repr(found)


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=6),
    scored=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_a_group_is_flat_if_its_scored_chains_agree(rewards: list[float], scored: list[bool]) -> None:
    chains = [chain(reward, scored=s) for reward, s in zip(rewards, scored, strict=False)]
    seen = [t.reward for t in chains if t.scored]
    assert is_flat(chains) == (len(seen) < 2 or len(set(seen)) == 1)


@pytest.mark.parametrize(("rewards", "score"), [((1, 1, 1), DROP), ((1, 0, 1), KEEP)])
def test_all_chains_of_a_group_get_one_verdict_when_the_last_has_ended(rewards: tuple[int, ...], score: float) -> None:
    async def play() -> list[float]:
        group = Group(3)
        assert [group.next_index() for _ in range(3)] == [0, 1, 2]
        verdicts = [asyncio.ensure_future(group.verdict()) for _ in range(3)]
        for number, reward in enumerate(rewards):
            await asyncio.sleep(0)
            assert not any(v.done() for v in verdicts)
            assert group.end(chain(float(reward))) == (number == 2)
        return await asyncio.gather(*verdicts)

    assert asyncio.run(play()) == [score] * 3


def test_versions_count_complete_broadcasts() -> None:
    clock = WeightClock(0)
    for name, arguments in [
        ("init_process_group", ("host", True)),
        ("update_weight", ("a", "bf16", (2,), False)),
        ("update_weight", ("b", "bf16", (2,), False)),
    ]:
        clock.called(name, arguments)
    assert clock.version == 0
    clock.called("update_weight", ("c", "bf16", (2,), True))
    assert clock.version == 1
    clock.called("update_weight_cuda_ipc", ("c", "bf16", (2,), {}, True))
    assert clock.version == 2


def test_a_resumed_run_is_given_its_weights_before_it_samples() -> None:
    clock = WeightClock(7)
    clock.called("update_weight", ("c", "bf16", (2,), True))
    assert clock.version == 7


def test_engines_pause_together() -> None:
    @dataclass
    class Listener:
        heard: list[str] = field(default_factory=list)

        def pause(self) -> None:
            self.heard.append("pause")

        def resume(self) -> None:
            self.heard.append("resume")

    clock, early, late = WeightClock(0), Listener(), Listener()
    clock.listen(early)
    clock.pause()
    clock.listen(late)
    clock.resume()
    assert early.heard == late.heard == ["pause", "resume"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(id=st.text(), content=st.text(), fields=st.dictionaries(st.text(), json_values, max_size=3))
def test_a_task_survives_its_row(id: str, content: str, fields: dict[str, Any]) -> None:
    task = Task(id, ({"role": "user", "content": content},), fields)
    row = to_row(task)
    assert row.isascii()
    assert from_row(row) == task


class FakeActor:
    """OpenRLHF's rollout actor: answers with ids 3, 4 and remembers what it was asked."""

    def __init__(self, clock: WeightClock) -> None:
        self.kwargs = {"max_model_len": 10}
        self.clock = clock
        self.asked: list[Any] = []

    async def generate(self, ids: list[int], params: Any) -> Any:
        self.asked.append((ids, params))
        self.clock.called("update_weight", (True,))
        logprobs = [{3: SimpleNamespace(logprob=-0.5)}, {4: SimpleNamespace(logprob=-1.5)}]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=[3, 4], logprobs=logprobs, finish_reason="stop")])


def test_the_backend_passes_ids_through_and_says_which_weights_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> tuple[Generation, FakeActor]:
        clock = WeightClock(0)
        actor = FakeActor(clock)
        backend = RolloutBackend(actor, asyncio.get_running_loop(), clock)
        monkeypatch.setattr(backend, "_params", lambda sampling: sampling)
        assert backend.max_model_len == 10
        with pytest.raises(UsageError, match="11 tokens of prompt and generation exceed the limit of 10"):
            await backend.generate(GenerationRequest((1, 2, 9), SamplingParams(max_tokens=8)))
        with pytest.raises(UsageError, match="cannot forbid ids"):
            await backend.generate(GenerationRequest((1,), SamplingParams(max_tokens=8, forbidden_token_ids=(3,))))
        return await backend.generate(GenerationRequest((1, 2), SamplingParams(max_tokens=8))), actor

    generation, actor = asyncio.run(play())
    assert generation == Generation((3, 4), (-0.5, -1.5), "stop", 0, 1)
    assert actor.asked == [([1, 2], SamplingParams(max_tokens=8))]


def test_trajectories_are_on_disk_when_nothing_runs(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from agentfly_learner_openrlhf.rollout.parts import TrajectoryParts

    from agentfly_core.runs import read_trajectories

    def files() -> list[str]:
        return sorted(file.name for file in tmp_path.iterdir())

    async def play() -> None:
        parts = TrajectoryParts(tmp_path, "engine-1")
        for _ in range(3):
            parts.begin()
        await parts.end(1, chain(index=0))
        await parts.end(1, None)
        assert files() == []
        await parts.end(2, chain(index=1))
        assert [t.chain_index for t in read_trajectories(tmp_path)] == [0, 1]
        parts.begin()
        await parts.end(2, chain(index=2))

    asyncio.run(play())
    assert [t.chain_index for t in read_trajectories(tmp_path)] == [0, 1, 2]
    assert files() == ["step-000001-train.engine-1.parquet", "step-000002-train.engine-1.parquet"]
