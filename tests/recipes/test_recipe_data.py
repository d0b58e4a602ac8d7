"""Data files, functions, order."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.recipes.data import Rows, open_source, to_messages, to_task
from agentfly_core.recipes.files import Row, file_rows
from agentfly_core.recipes.schema import DataSection, DataSource
from agentfly_core.types import UsageError

PARTS = Path(__file__).parent / "demo_parts.py"


def rows_of(source: str, *, limit: int | None = None, base: Path = Path(), **options: Any) -> Rows:
    return open_source(
        DataSource(source=source, limit=limit, options=options),
        split="train",
        seed=3,
        base=base,
        modules={"demo_parts": PARTS},
        where="data.train",
    )


def values(rows: Rows, count: int) -> list[Any]:
    return [row.values for row in rows.first(count)]


def listed(count: int) -> Rows:
    return Rows("numbers", listed=[Row({"n": n}, n, f"row {n}") for n in range(count)])


def test_every_format_reads_alike(tmp_path: Path) -> None:
    rows = [{"prompt": "a, b", "answer": "1"}, {"prompt": 'say "é"', "answer": "2"}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.csv").write_text('\ufeffprompt,answer\n"a, b",1\n"say ""é""",2\n', encoding="utf-8")
    for name in ("a.jsonl", "a.json", "a.csv"):
        assert values(rows_of(name, base=tmp_path), 9) == rows
    for name in ("a.jsonl", "a.json"):  # as Windows' editors save them
        (tmp_path / name).write_text((tmp_path / name).read_text(encoding="utf-8"), encoding="utf-8-sig")
        assert values(rows_of(name, base=tmp_path), 9) == rows
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert values(rows_of("a.parquet", base=tmp_path), 9) == rows


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.jsonl", '{"a": 1}\n\n{"a": \n', r"a\.jsonl:3: not JSON: Expecting value"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl:2: a row is an object, got \[1\]"),
        ("a.json", '[{"a": 1},\n {"a" 2}]', r"a\.json:2: not JSON: Expecting ':' delimiter"),
        ("a.json", '{"a": 1}', "expected a list of objects, got a dict"),
        ("a.json", '[{"a": 1}, 2]', r"a\.json, row 2: a row is an object"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", r"a\.csv:3: not as many values as there are columns \(2\)"),
        ("a.csv", "a,b\n1\n", r"a\.csv:2: not as many values"),
        ("a.parquet", "junk", r"a\.parquet is no Parquet file"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=says):
        list(file_rows(tmp_path / name))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl does not exist"):
        list(file_rows(tmp_path / "none.jsonl"))
    with pytest.raises(UsageError, match=r"none of \.jsonl, \.json, \.csv, \.parquet"):
        list(file_rows(tmp_path / "a.txt"))
    (tmp_path / "latin.jsonl").write_bytes(b'{"a": "\xe9"}\n')
    with pytest.raises(UsageError, match="cannot be read"):
        list(file_rows(tmp_path / "latin.jsonl"))


def test_a_function_gets_what_it_takes() -> None:
    assert values(rows_of("demo_parts:rows", count=2), 9) == [
        {"prompt": "train 3 0", "answer": 0},
        {"prompt": "train 3 1", "answer": 1},
    ]
    assert values(rows_of("demo_parts:stream", limit=2), 9) == [
        {"id": "train0", "prompt": "say 0", "answer": 0},
        {"id": "train1", "prompt": "say 1", "answer": 1},
    ]
    assert len(rows_of(f"{PARTS}:rows").first(99)) == 10


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        (
            "demo_parts:rows",
            {"cuont": 2},
            "unknown option of data source 'demo_parts:rows' 'cuont'; did you mean 'count'",
        ),
        ("demo_parts:rows", {"count": "2"}, "option 'count' of data source 'demo_parts:rows': must be a valid integer"),
        ("demo_parts:row", {}, f"data.train: unknown function of {PARTS} 'row'; did you mean 'rows'?"),
        (f"{PARTS}:row", {}, f"data.train: unknown function of {PARTS} 'row'; did you mean 'rows'?"),
        ("json:lods", {}, "json/__init__.py 'lods'; did you mean 'loads' or 'load'?"),
        ("demo_parts:xyz", {}, "'xyz'; known: empty, finite_stream, junk, leaving, leaving_late, make_"),
        ("no_such_module:f", {}, "data.train: 'no_such_module:f' cannot be imported"),
        ("demo_parts:PARTS_MISSING.deep", {}, "'PARTS_MISSING.deep'; known: "),
        ("demo_parts:junk", {}, "demo_parts:junk, row 1: a row is a mapping or a Task, got 1"),
        ("demo_parts:leaving", {}, "data source 'demo_parts:leaving' ends the process (sys.exit)"),
        ("demo_parts:leaving_late", {}, "data source 'demo_parts:leaving_late' ends the process (sys.exit)"),
        ("rows", {}, "is neither a file"),
    ],
)
def test_a_function_that_does_not_fit(source: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        list(rows_of(source, **options).first(9))


def test_a_file_takes_no_options(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"data\.train\.options: a data file takes none"):
        rows_of("a.jsonl", base=tmp_path, n=1)


@given(
    count=st.integers(1, 12),
    block=st.integers(1, 5),
    start=st.integers(0, 40),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
)
def test_order_of_a_list(count: int, block: int, start: int, seed: int, shuffle: bool) -> None:
    """Skipping equals not having looked; no row twice in a block; an epoch holds each row at most once."""
    if count < block:
        with pytest.raises(UsageError, match=f"has {count} rows, but one step takes {block}"):
            listed(count).endless(seed=seed, shuffle=shuffle, block=block)
        return
    whole = [r.number for r in itertools.islice(listed(count).endless(seed=seed, shuffle=shuffle, block=block), 80)]
    later = listed(count).endless(seed=seed, shuffle=shuffle, block=block, start=start)
    assert [r.number for r in itertools.islice(later, 80 - start)] == whole[start:]
    epoch = count // block * block
    for begin in range(0, 80 - epoch, epoch):
        assert len(set(whole[begin : begin + epoch])) == epoch
    if not shuffle:
        assert whole[: 2 * epoch] == [*range(epoch), *range(epoch)][:80]


def test_shuffling_depends_on_seed_and_epoch() -> None:
    def order(seed: int) -> list[int]:
        return [r.number for r in itertools.islice(listed(50).endless(seed=seed, shuffle=True), 100)]

    first = order(1)
    assert first == order(1)
    assert first != order(2)
    assert first[:50] != first[50:]
    assert sorted(first[:50]) == list(range(50))


def test_a_generator_keeps_its_order_and_begins_anew() -> None:
    rows = rows_of("demo_parts:finite_stream")
    found = list(itertools.islice(rows.endless(seed=0, shuffle=True), 7))
    assert [r.values["prompt"] for r in found] == list("abcabca")  # type: ignore[call-overload]
    assert [r.number for r in found] == list(range(7))
    later = rows.endless(seed=0, shuffle=True, start=4)
    assert next(later).values == {"prompt": "b", "answer": 0}
    with pytest.raises(UsageError, match="has no rows"):
        next(rows_of("demo_parts:empty").endless(seed=0, shuffle=True))


def test_to_task() -> None:
    data = DataSection(prompt="question")
    task = to_task(Row({"question": "why?", "answer": 4, "prompt": "x"}, 7, "here"), data, needs_prompt=True)
    assert (task.id, task.messages) == ("7", ({"role": "user", "content": "why?"},))
    assert task.fields == {"answer": 4, "prompt": "x"}
    named = to_task(Row({"id": 12, "question": [{"role": "user", "content": "a"}]}, 0, "here"), data, needs_prompt=True)
    assert (named.id, named.messages, named.fields) == ("12", ({"role": "user", "content": "a"},), {})
    assert to_task(Row({"n": 1}, 0, "here"), data, needs_prompt=False).messages == ()
    with pytest.raises(UsageError, match=r"here: no column 'question' \(data\.prompt\); its columns: prompt, answer"):
        to_task(Row({"prompt": "x", "answer": 1}, 0, "here"), data, needs_prompt=True)
    for empty in (None, "", []):
        with pytest.raises(UsageError, match=r"here: column 'question' \(data\.prompt\) is empty"):
            to_task(Row({"question": empty}, 0, "here"), data, needs_prompt=True)
    own = runpy.run_path(str(PARTS))["tasks_not_rows"]()[0]
    assert to_task(Row(own, 0, "here"), data, needs_prompt=True) is own


@pytest.mark.parametrize(
    "prompt",
    [
        3,
        [3],
        [{"role": "robot", "content": "x"}],
        [{"role": "user"}],
        {"role": "user"},
        [{"role": "user", "content": [5]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "assistant", "content": "", "tool_calls": 5}],
        [{"role": "assistant", "content": "", "tool_calls": [5]}],
    ],
)
def test_prompts_of_another_form(prompt: Any) -> None:
    with pytest.raises(UsageError, match="here: "):
        to_messages(prompt, "here")


def test_null_entries_of_messages_are_absent_ones() -> None:
    messages = to_messages([{"role": "assistant", "content": None, "tool_calls": [], "name": None}], "here")
    assert messages == ({"role": "assistant", "content": "", "tool_calls": []},)
