"""Reading and comparing numbers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.rewards import numeric_match
from agentfly_core.rewards.numbers import Quantity, final_number
from agentfly_core.types import MissingDependency, ToolContext, UsageError


def score(chain: Any, response: str, answer: Any, **options: Any) -> float:
    made = numeric_match(**options)
    return asyncio.run(made.score(chain(response, {"answer": answer}), ToolContext())).score


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        ("The answer is 72.", 72),
        ("**72**", 72),
        ("so 5 eggs cost $2 (not 3)", 3),
        ("She pays $1,234.50.", Fraction("1234.5")),
        ("1,000,000", 10**6),
        ("1{,}234", 1234),
        ("2, 3, 5", 5),
        ("12,34", 34),
        ("\\$5", 5),
        ("€ 5", 5),
        ("18 dollars", 18),
        ("5km", 5),
        ("3.", 3),
        (".5", Fraction(1, 2)),
        ("-5", -5),
        ("x=-5", -5),
        ("it is -5.", -5),
        ("(-5)", -5),
        ("-$3.50", Fraction(-7, 2)),
        ("\u22125", -5),
        ("10-5", 5),
        ("pages 3-4", 4),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("1 1/2 cups", Fraction(3, 2)),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("-\\dfrac{3}{4}", Fraction(-3, 4)),
        ("\\frac12", Fraction(1, 2)),
        ("2\\frac{1}{2}", Fraction(5, 2)),
        ("1/2 + 1/3 = 5/6", Fraction(5, 6)),
        ("1.5e3", 1500),
        ("1.5E-3", Fraction(3, 2000)),
        ("1.5 \\times 10^{3}", 1500),
        ("2 x 10^3 m", 2000),
        ("#### 72", 72),
        ("1+1=2 so\n#### 1,234\nI had 9 apples", 1234),
        ("#### 1\n#### 2", 2),
        ("\\boxed{5} of 9", 5),
        ("\\boxed{\\frac{3}{4}}", Fraction(3, 4)),
        ("\\boxed{5\\text{ cm}}", 5),
        ("\\boxed{1}, no, \\boxed{-2}", -2),
        ("\\boxed{12", 12),
    ],
)
def test_final_number(text, value):
    assert final_number(text) == Quantity(Fraction(value))


@pytest.mark.parametrize(
    "text", ["", "none", "H2O", "five", "5/0", "9" * 1000, "1e99999999", "#### unknown", "\\boxed{}"]
)
def test_no_number(text):
    assert final_number(text) is None


@pytest.mark.parametrize(
    ("response", "answer", "right"),
    [
        ("#### 72", "Natalia sold 48/2 = 24.\n48+24 = 72\n#### 72", 1),
        ("It is 72.0", 72, 1),
        ("It is 71", 72, 0),
        ("I do not know", 72, 0),
        ("0.5", "1/2", 1),
        ("\\boxed{\\frac{1}{2}}", 0.5, 1),
        ("25%", 25, 1),
        ("25%", 0.25, 1),
        ("0.25", "25%", 1),
        ("25", "25\\%", 1),
        ("2500%", "25%", 0),
        ("0.25%", "25%", 0),
        ("0.333", "1/3", 0),
        ("10000001", 10000000, 0),
        ("-5", 5, 0),
        ("$1,234", "1234", 1),
        ("0.1", 0.1, 1),
        ("1", True, 1),
        ("0.30000000000000004", "0.3", 1),
    ],
)
def test_scores(chain, response, answer, right):
    assert score(chain, response, answer) == right


def test_options(chain):
    assert score(chain, "0.333", "1/3", tolerance=0.01) == 1
    assert score(chain, "1005", 1000, tolerance=0.01) == 1
    assert score(chain, "0.300000000001", "0.3", tolerance=0) == 0
    made = numeric_match(field="target")
    assert made.fields == {"target"}
    assert made.name == "numeric_match"
    assert asyncio.run(made.score(chain("7", {"target": 7}), ToolContext())).score == 1
    for tolerance in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="tolerance"):
            numeric_match(tolerance=tolerance)


def test_an_answer_without_a_number_is_the_data_sets_fault(chain):
    with pytest.raises(Exception, match=r"'answer' of task 'task-1' holds no number: 'blue'"):
        score(chain, "5", "blue")


@given(
    value=st.fractions(max_denominator=1000).filter(lambda f: abs(f) < 10**9),
    before=st.sampled_from(["", "So it is ", "3 + 4 = ", "x=", "**"]),
    after=st.sampled_from(["", ".", " apples", "**", " dollars.", "\n"]),
)
def test_what_is_written_is_read(value, before, after):
    assert final_number(f"{before}{value}{after}") == Quantity(value)
    whole = round(value)
    assert final_number(f"{before}{whole:,}{after}") == Quantity(Fraction(whole))
    assert final_number(f"#### ${abs(whole):,}{after}\nignored 1") == Quantity(Fraction(abs(whole)))


@given(st.text(max_size=80) | st.text("0123456789.,-+/%$eE^x{}\\frac boxed#", max_size=80))
def test_any_text_is_a_number_or_none(text):
    found = final_number(text)
    assert found is None or isinstance(found.value, Fraction)


@pytest.mark.parametrize(
    "unit",
    ["1,234,", "1/", "1 ", "\\frac{", "\\frac{1}{1", "1 1/", "{", "\\boxed{", "1e", "1x10^", "#### ", " ", "9", ".5"],
)
def test_hostile_text_is_read_within_a_second(unit):
    started = time.process_time()
    final_number(unit * (10**6 // len(unit)))
    assert time.process_time() - started < 1


def gsm8k() -> list[dict[str, Any]]:
    folder = Path(os.environ.get("AGENTFLY_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
    file = folder / "gsm8k" / "test_200.jsonl"
    if not file.is_file():
        pytest.skip(f"no {file}")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_gsm8k(chain):
    rows = gsm8k()
    assert len(rows) == 200
    for row in rows:
        wanted = row["answer"].rpartition("####")[2].strip()
        number = int(wanted.replace(",", ""))
        assert final_number(row["answer"]) == Quantity(Fraction(number))
        for response in (row["answer"], f"The answer is {wanted}.", f"\\boxed{{{number}}}", f"${number:,}.00"):
            assert score(chain, response, row["answer"]) == 1, response
        assert score(chain, f"The answer is {number + 1}.", row["answer"]) == 0


def test_math_verify_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(MissingDependency, match=r"agentfly-core\[math\]"):
        numeric_match(math_verify=True)


@pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="needs math-verify")
def test_math_verify_compares_latex_and_can_be_stopped(chain):
    from agentfly_core.rewards.verifier import Verifier

    verify = Verifier(seconds=5)
    try:
        assert verify("\\sqrt{8}", "so $2\\sqrt{2}$")
        assert not verify("x+1", "so $\\boxed{2+x}$")
        assert not verify("3", "$9^{9^{9^{9}}}$")
        assert verify("x+1", "so $\\boxed{1+x}$")
    finally:
        verify.close()
    assert score(chain, "$(1, 2)$", "(1,2)", math_verify=True) == 1
