"""What passes between tests and the code under test."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from agentfly_tools_code.inside.output import Output
from agentfly_tools_code.inside.values import Unfit, check, decode, encode
from agentfly_tools_code.testing_code import _checked
from hypothesis import given, settings
from hypothesis import strategies as st

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
)  # fmt: skip
keys = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.frozensets(st.integers()))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner), st.sets(keys), st.frozensets(keys)
    ),
    max_leaves=20,
)


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return [dict, *[(types_of(k), types_of(v)) for k, v in value.items()]]
    if isinstance(value, list | tuple):
        return [type(value), *map(types_of, value)]
    return type(value)


@settings(max_examples=50, deadline=None)
@given(values)
def test_plain_data_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    data = json.loads(json.dumps(encode(value)))
    check(data)
    back = decode(data)
    assert back == value
    assert types_of(back) == types_of(value)


def test_nan_and_infinities_come_back() -> None:
    values = [math.nan, math.inf, -math.inf, complex(math.inf, -math.inf)]
    data = json.loads(json.dumps(encode(values), allow_nan=False))
    check(data)
    back = decode(data)
    assert math.isnan(back[0])
    assert back[1:] == values[1:]


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-5, 5).filter(bool), st.lists(keys))
def test_ranges_and_keys_come_back(start: int, stop: int, step: int, names: list[Any]) -> None:
    for value in (range(start, stop, step), dict.fromkeys(names).keys()):
        data = json.loads(json.dumps(encode(value)))
        check(data)
        back = decode(data)
        assert (type(back), list(back)) == (type(value), list(value))
    with pytest.raises(Unfit, match="too long"):
        encode(range(10**9))
    for forged in (["r", 0, 10**9, 1], ["r", 0, 1], ["r", 0, 1.5, 1], ["r", 0, 1, 0], ["r", 0, 1 << 70, 1 << 69]):
        with pytest.raises(Unfit):
            check(forged)


def test_subclasses_become_what_they_derive_from() -> None:
    class Sly(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    class Text(str):
        def __str__(self) -> str:
            return "other"

    back = decode(encode([Sly(3), Text("x"), {Sly(1): 2}]))
    assert [type(v) for v in back] == [int, str, dict]
    assert back[1] == "x"
    assert type(next(iter(back[2]))) is int


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(list("ilfbtdsco"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(json_values)
def test_hostile_data_is_read_or_refused(data: Any) -> None:
    try:
        value = decode(data, lambda reference: None)
    except Unfit:
        return
    assert type(value).__module__ == "builtins"


@settings(max_examples=50, deadline=None)
@given(json_values)
def test_what_has_the_right_form_can_be_read_up_to_keys_without_a_hash(data: Any) -> None:
    try:
        check(data)
    except Unfit:
        return
    with contextlib.suppress(Unfit):
        decode(data, lambda reference: None)


class Counted(int):
    """A number that counts how often it is compared; all of them hash alike, as multiples of 2**61 - 1 do."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("kind", ["s", "fs", "d", "c"])
def test_looking_at_the_form_compares_no_keys(kind: str) -> None:
    keys = [Counted(n) for n in range(100)]
    data: list[Any] = [kind, [[k, 0] for k in keys] if kind == "d" else keys]
    if kind == "c":
        data = ["c", ["s", keys], 0.0]
    Counted.comparisons = 0
    with contextlib.suppress(Unfit) if kind == "c" else contextlib.nullcontext():
        check(data)
    assert Counted.comparisons == 0
    with contextlib.suppress(Unfit):
        decode(data)
    assert Counted.comparisons > 1000


REFUSED = [
    {}, [], [[]], ["l"], ["l", 5], ["l", "ab"], ["l", [], []], ["d", [[1]]], ["d", [1]], ["d", {"ab": 1}], ["i", 5],
    ["i", "x"], ["f", []], ["b", "0"], ["c", 1.0], ["c", 1.0, ["s", [1]]], ["o", "0", "C", []], ["o", 0, "C", [1]],
    ["o", 0], ["x", 1], {"f": 0, "1": 0}, [["l"], []],
]  # fmt: skip


@pytest.mark.parametrize("data", REFUSED, ids=str)
def test_data_of_another_form_is_refused(data: Any) -> None:
    with pytest.raises(Unfit):
        check(["l", [data]])


def test_references_and_depth() -> None:
    check(["t", [["o", 3, "C", ["__iter__"]]]])
    deep: Any = 0
    for _ in range(100):
        deep = ["l", [deep]]
    with pytest.raises(Unfit, match="nested deeper"):
        check(deep)


def test_an_answer_is_passed_on_without_building_its_values() -> None:
    keys = [Counted(n) for n in range(100)]
    answer = {"value": ["d", [[k, 0] for k in keys]], "changed": [[0, ["s", keys]]]}
    Counted.comparisons = 0
    passed = _checked(answer)
    assert Counted.comparisons == 0
    assert passed["value"] is answer["value"]


def test_depth_and_size_are_bounded() -> None:
    deep: Any = 0
    for _ in range(100):
        deep = ["l", [deep]]
    with pytest.raises(Unfit, match="nested deeper"):
        decode(deep)
    with pytest.raises(Unfit, match="too large"):
        encode(1 << 2_000_000)
    with pytest.raises(Unfit, match="no plain data"):
        encode(object())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_output_keeps_its_beginning_and_end(parts: list[bytes], limit: int) -> None:
    output = Output(limit)
    for part in parts:
        output.add(part)
    whole = b"".join(parts)
    if len(whole) <= limit:
        assert output.text() == whole.decode("utf-8", "replace")
    else:
        head, tail = whole[: limit - limit // 2], whole[len(whole) - limit // 2 :]
        note = f"\n[... {len(whole) - limit} bytes left out ...]\n"
        assert output.text() == head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
