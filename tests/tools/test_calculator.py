"""The calculator against Python's own arithmetic, and against hostile input."""

from __future__ import annotations

import asyncio
import math
import time
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentfly_core.tools import calculator
from agentfly_core.tools.calculator import CalculatorError, evaluate, format_number
from agentfly_core.types import ToolContext, ToolStatus


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("1+1", "2"),
        (" 47 * 86 + 12 ", "4054"),
        ("7/2", "3.5"),
        ("6/2", "3"),
        ("7//2", "3"),
        ("-7 % 3", "2"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("0.1+0.2", "0.3"),
        ("10/3", "3.33333333333"),
        ("1e20", "1e+20"),
        ("3 \u00d7 4 \u2212 1", "11"),
        ("-(-3)", "3"),
        ("2**100", str(2**100)),
        ("12345678901234567890 * 98765432109876543210", str(12345678901234567890 * 98765432109876543210)),
        ("sqrt(16)", "4"),
        ("max(1, 2, 3) - min(4, 5)", "-1"),
        ("round(2.567, 2)", "2.57"),
        ("abs(-3) + floor(2.9) + ceil(2.1)", "8"),
        ("factorial(20)", str(math.factorial(20))),
        ("gcd(12, 18)", "6"),
        ("log(e)", "1"),
        ("sin(0)", "0"),
        ("2*pi", "6.28318530718"),
        ("0**0", "1"),
        ("(-2)**3", "-8"),
        ("1_000 + 1", "1001"),
        ("+".join(["1"] * 150), "150"),
    ],
)
def test_values(expression, shown):
    assert calculator(expression) == shown


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("9**9**9", "too large"),
        ("((9**99)**99)**99", "too large"),
        ("10**(10**9)", "too large"),
        ("2**10001", "too large"),
        ("9**3000*9**3000", "too large"),
        ("1" * 10**6, "1000000 characters"),
        ("(" * 10**5 + "1" + ")" * 10**5, "characters"),
        ("(" * 450 + "1" + ")" * 450, "nested"),
        ("-" * 900 + "1", "nested too deeply"),
        ("factorial(10**8)", "between 0 and 1000"),
        ("factorial(factorial(20))", "between 0 and 1000"),
        ("round(5, -10**9)", "digits"),
        ("1e308*10", "too large"),
        ("1e999", "too large"),
        ("exp(1000)", "too large"),
        ("2.0**5000", "too large"),
        ("1/0", "division by zero"),
        ("1%0", "division by zero"),
        ("0**-1", "division by zero"),
        ("(-8)**0.5", "not a real number"),
        ("sqrt(-1)", ""),
        ("'a'*10**9", "not text"),
        ("[1]*10**9", "not List"),
        ("(1).real", "not Attribute"),
        ("().__class__.__bases__", "not Attribute"),
        ("__import__('os').system('true')", "only numbers"),
        ("open('x')", "unknown function 'open'"),
        ("x + 1", "unknown name 'x'"),
        ("lambda: 1", "not Lambda"),
        ("[x for x in range(9)]", "not ListComp"),
        ("f'{1}'", "not JoinedStr"),
        ("1 if 1 else 2", "not IfExp"),
        ("1 < 2", "not Compare"),
        ("True", "not Constant"),
        ("1j", "no decimal number"),
        ("(x := 1)", "not NamedExpr"),
        ("~1", "not UnaryOp"),
        ("1 << 10**9", "not BinOp"),
        ("2(3+4)", "with *"),
        ("1,000 + 1", "thousands separators"),
        ("max(*[1])", "not Starred"),
        ("min(5)", ""),
        ("", "not an arithmetic expression"),
        ("3+4=", "not an arithmetic expression"),
        ("1\n2", "not an arithmetic expression"),
        ("1\x00", ""),
        ("\ud800", ""),
    ],
)
def test_hostile_and_wrong_input_is_an_error_within_a_second(expression, said):
    started = time.process_time()
    outcome = asyncio.run(calculator.call({"expression": expression}, ToolContext()))
    assert time.process_time() - started < 1
    if outcome.status is ToolStatus.INVALID_ARGUMENTS:  # text that is no unicode does not get that far
        assert "\ud800" in expression
        return
    assert outcome.status is ToolStatus.FAILED
    assert said in outcome.content
    assert len(outcome.content) < 400


def expressions() -> st.SearchStrategy[str]:
    numbers = st.integers(0, 50).map(str)
    return st.recursive(
        numbers,
        lambda inner: (
            st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/", "**"]), inner).map(
                lambda t: f"({t[0]}{t[1]}{t[2]})"
            )
            | inner.map(lambda t: f"(-{t})")
        ),
        max_leaves=6,
    )


@given(expressions())
def test_agrees_with_python_on_integer_expressions(expression):
    try:
        found = evaluate(expression)
    except CalculatorError as error:
        if "zero" in str(error):
            with pytest.raises(ZeroDivisionError):
                eval(expression)
        elif "too large" not in str(error) and "real" not in str(error):
            raise
        return
    wanted = eval(expression)  # our own text of digits and operators, its size checked by evaluate
    assert found == wanted
    assert type(found) is type(wanted)


@given(st.text(max_size=60) | st.text("0123456789.+-*/()e^, ", max_size=60))
@example("4^512")
def test_any_text_is_a_number_or_an_error(text):
    try:
        value = evaluate(text)
    except CalculatorError:
        return
    if isinstance(value, int):  # exact, and maybe greater than any float
        assert int(format_number(value)) == value
        return
    assert math.isfinite(value)
    assert float(format_number(value)) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("expression", ["2and 3", "47if", "3x", "0x1f", "5is 5", "1.2.3", "2e5e5"])
def test_numerals_that_run_into_letters_are_refused_without_a_parser_warning(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CalculatorError, match="no decimal number"):
            evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "value"), [("1e3+1", 1001), ("2.5E-1", 0.25), (".5*4", 2), ("3.", 3), ("log2(8)", 3)]
)
def test_numerals_of_every_form_are_read(expression: str, value: float) -> None:
    assert evaluate(expression) == value
