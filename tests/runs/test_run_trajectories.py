"""Trajectories on disk equal those in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfly_core.runs import TrajectoryWriter, read_trajectories
from agentfly_core.runs.encoding import dump, from_row, load, to_row
from agentfly_core.types import (
    AssistantTurn,
    CallError,
    CallErrorKind,
    ChainStatus,
    Segment,
    Task,
    ToolCall,
    ToolOutcome,
    ToolStatus,
    Trajectory,
    Turn,
    TurnSpan,
    UsageError,
)

pyarrow = pytest.importorskip("pyarrow")

# Any text a model or tool may make: control characters, every plane, lone surrogates.
text = st.text(st.characters(), max_size=12)
number = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
mappings = st.dictionaries(text | st.just("$agentfly"), json_values, max_size=3)
numbers = st.dictionaries(text, number, max_size=2)
calls = st.builds(ToolCall, text, mappings, text) | st.builds(
    CallError, st.sampled_from(CallErrorKind), text, st.none() | text, text
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": text})
    | st.fixed_dictionaries({"type": st.just("image"), "image": st.binary(max_size=8)}),
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": text | parts},
        optional={"tool_calls": st.lists(mappings, max_size=2), "reasoning_content": text},
    ),
    max_size=3,
).map(tuple)
outcomes = st.builds(
    ToolOutcome, text, st.sampled_from(ToolStatus), text | parts, number, st.booleans(), numbers, call_id=text
)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
turns = st.builds(
    Turn,
    index=st.integers(0, 50),
    segment=st.integers(0, 3),
    token_ids=ids,
    finish_reason=st.sampled_from(["stop", "length", "abort"]),
    assistant=st.builds(AssistantTurn, text, st.none() | text, st.lists(calls, max_size=2).map(tuple), st.booleans()),
    outcomes=st.lists(outcomes, max_size=2).map(tuple),
    observation=messages,
    reward=number,
    anchor=st.none() | text,
    weight_version=st.integers(0, 9),
    last_weight_version=st.integers(0, 9),
    generate_seconds=number,
    act_seconds=number,
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    prompt = draw(ids)
    sampled = draw(ids)
    length = len(prompt)
    mask = (0,) * length + (1,) * len(sampled)
    logprobs = (0.0,) * length + tuple(draw(st.lists(number, min_size=len(sampled), max_size=len(sampled))))
    return Segment(prompt + sampled, mask, logprobs, length, (TurnSpan(0, length, len(mask)),))


trajectories = st.builds(
    Trajectory,
    task=st.builds(Task, text, messages, mappings),
    chain_index=st.integers(0, 100),
    group=text,
    split=st.sampled_from(["train", "eval"]),
    status=st.sampled_from(ChainStatus),
    segments=st.lists(segments(), max_size=2).map(tuple),
    turns=st.lists(turns, max_size=2).map(tuple),
    messages=messages,
    final_response=st.none() | text,
    reward=number,
    scored=st.booleans(),
    unscored_reason=st.none() | text,
    components=numbers,
    turn_rewards=st.lists(number, max_size=3).map(tuple),
    metrics=numbers,
    error=st.none() | text,
    seconds=number,
)


def simple(task: str = "t", split: str = "train", **fields: object) -> Trajectory:
    return Trajectory(Task(task), 0, f"g/{task}", split, ChainStatus.COMPLETED, **fields)  # type: ignore[arg-type]


@given(trajectory=trajectories)
@settings(max_examples=80, deadline=None)
def test_row_round_trip(trajectory: Trajectory) -> None:
    assert from_row(to_row(3, trajectory)) == trajectory


@given(batch=st.lists(trajectories, min_size=1, max_size=3))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_file_round_trip(batch: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("trajectories")
    writer = TrajectoryWriter(folder)
    for trajectory in batch:
        writer.append(1, trajectory)
    writer.flush(1)
    back = list(read_trajectories(folder))
    assert back == [t for split in ("eval", "train") for t in batch if t.split == split]


def test_columns_can_be_read_without_agentfly(tmp_path: Path) -> None:
    import pyarrow.parquet

    segment = Segment((5, 6, 7), (0, 1, 1), (0.0, -0.5, -0.25), 1, (TurnSpan(0, 1, 3),))
    writer = TrajectoryWriter(tmp_path)
    writer.append(12, simple(segments=(segment,), reward=0.5, scored=True, components={"exact": 0.5}))
    writer.flush(12)
    [row] = pyarrow.parquet.read_table(tmp_path / "step-000012-train.parquet").to_pylist()
    assert (row["step"], row["split"], row["group"], row["task_id"]) == (12, "train", "g/t", "t")
    assert (row["token_ids"], row["action_mask"], row["logprobs"]) == ([[5, 6, 7]], [[0, 1, 1]], [[0.0, -0.5, -0.25]])
    assert (row["reward"], row["scored"], json.loads(row["components_json"])) == (0.5, True, {"exact": 0.5})


def test_one_file_a_step_and_split_and_a_second_flush_adds(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    for step, task, split in [(1, "a", "train"), (1, "b", "eval"), (2, "c", "train")]:
        writer.append(step, simple(task, split))
    writer.flush(1)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["step-000001-eval.parquet", "step-000001-train.parquet"]
    writer.append(1, simple("d", "eval"))
    writer.flush(1)
    writer.flush(2)
    assert [t.task.id for t in read_trajectories(tmp_path)] == ["b", "d", "a", "c"]


def test_several_processes_write_a_file_each(tmp_path: Path) -> None:
    writers = [TrajectoryWriter(tmp_path, part) for part in ("engine-0", "engine-1")]
    for writer, task in zip(writers, "ab", strict=True):
        for step in (1, 2):
            writer.append(step, simple(f"{task}{step}"))
            writer.flush(step)
    assert [f.name for f in sorted(tmp_path.glob("*-000001-*"))] == [
        "step-000001-train.engine-0.parquet",
        "step-000001-train.engine-1.parquet",
    ]
    assert [t.task.id for t in read_trajectories(tmp_path)] == ["a1", "b1", "a2", "b2"]
    TrajectoryWriter(tmp_path).rewind(1)
    assert [t.task.id for t in read_trajectories(tmp_path)] == ["a1", "b1"]


def test_rewind_deletes_later_steps(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    for step in (1, 2, 3):
        writer.append(step, simple(str(step)))
        writer.flush(step)
    writer.rewind(2)
    assert [t.task.id for t in read_trajectories(tmp_path)] == ["1", "2"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    writer = TrajectoryWriter(tmp_path)
    writer.append(1, simple("a"))
    writer.flush(1)
    write = pyarrow.parquet.write_table

    def torn(table: object, where: Path, **options: object) -> None:
        write(table, where, **options)
        raise OSError("disk full")

    monkeypatch.setattr(pyarrow.parquet, "write_table", torn)
    writer.append(1, simple("b"))
    with pytest.raises(UsageError, match="cannot be written: disk full"):
        writer.flush(1)
    assert [f.name for f in tmp_path.iterdir()] == ["step-000001-train.parquet"]
    assert [t.task.id for t in read_trajectories(tmp_path)] == ["a"]


def test_odd_values_do_not_stop_a_run() -> None:
    class Thing:
        def __repr__(self) -> str:
            return "a thing"

    assert load(dump({"x": Thing(), "y": (1, b"\xff")})) == {"x": "a thing", "y": [1, b"\xff"]}


def test_an_image_is_kept_as_png() -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    stored = load(dump({"image": image.new("RGB", (2, 1), (1, 2, 3))}))["image"]
    assert image.open(io.BytesIO(stored)).getpixel((1, 0)) == (1, 2, 3)


def test_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_trajectories(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no trajectory files"):
        read_trajectories(tmp_path)
    junk = tmp_path / "junk.parquet"
    junk.write_text("no parquet")
    with pytest.raises(UsageError, match=r"junk\.parquet is no trajectory file"):
        list(read_trajectories(junk))
