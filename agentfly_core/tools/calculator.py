"""Arithmetic on text that a model wrote: bounded in size and time, exact on integers."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from simpleeval import SimpleEval

from agentfly_core.tools.function import tool

Number: TypeAlias = int | float

MAX_CHARS = 1_000
MAX_DEPTH = 200
"""Of nested operations; a sum of so many terms counts as well."""
MAX_BITS = 10_000
"""Of an integer on the way, some 3,000 decimal digits: no operation on such numbers takes a millisecond."""

_SPELLINGS = {"^": "**", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"}
"""Signs that models copy from typeset text: times, dot, division and minus."""

_NUMERAL = re.compile(r"(?<![\w.])\.?\d[\w.]*")
_DECIMAL = re.compile(r"[\d_]*\.?[\d_]*([eE][\d_]*)?")
"""What may stand in a numeral; the sign of an exponent is not part of it."""

CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}


class CalculatorError(Exception):
    """The expression has no value here; the text says why."""


@tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % ** ( ) and functions such as sqrt, abs, min, max, round, log, sin.
    """
    return format_number(evaluate(expression))


def evaluate(expression: str) -> Number:
    """The value of an arithmetic expression; ``^`` is a power.

    Raises:
        CalculatorError: it is no such expression, is too large, or has no finite real value.
    """
    if len(expression) > MAX_CHARS:
        raise CalculatorError(f"the expression has {len(expression)} characters; at most {MAX_CHARS} are allowed")
    text = expression.strip()
    for written, meant in _SPELLINGS.items():
        text = text.replace(written, meant)
    for numeral in _NUMERAL.findall(text):
        if not _DECIMAL.fullmatch(numeral):  # Python's parser would warn of `2and` and read 0x1f
            raise CalculatorError(f"{numeral[:40]!r} is no decimal number; write a multiplication with *")
    try:
        tree = ast.parse(text, mode="eval").body
        _check(tree)
        return _bounded(_EVALUATOR.eval(text, previously_parsed=tree))
    except SyntaxError as error:
        raise CalculatorError(f"not an arithmetic expression: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise CalculatorError("the expression is nested too deeply") from error
    except ZeroDivisionError as error:
        raise CalculatorError("division by zero") from error
    except OverflowError as error:
        raise CalculatorError("the result is too large") from error
    except (ValueError, TypeError) as error:
        raise CalculatorError(str(error)) from error


def format_number(value: Number) -> str:
    """Integers in full, floats to 12 significant digits (0.1 + 0.2 is 0.3), whole ones without ``.0``."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.12g}"


def _check(tree: ast.expr) -> None:
    """Let nothing through but numbers, operators, constants and calls of our functions."""
    level: list[ast.expr] = [tree]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise CalculatorError(f"the expression is nested too deeply: at most {MAX_DEPTH} levels are allowed")
        level = [child for node in level for child in _operands(node)]


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return [node.operand]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        _bounded(node.value)
        return []
    if isinstance(node, ast.Name):
        if node.id not in CONSTANTS:
            raise CalculatorError(f"unknown name {node.id!r}; known: {', '.join(CONSTANTS)}")
        return []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in FUNCTIONS:
            raise CalculatorError(f"unknown function {node.func.id!r}; known: {', '.join(FUNCTIONS)}")
        return node.args
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Constant | ast.BinOp):
        raise CalculatorError("write a multiplication with *")
    if isinstance(node, ast.Tuple):
        raise CalculatorError("write numbers without thousands separators: 1000, not 1,000")
    raise CalculatorError(f"only numbers, operators and functions are allowed, not {_what(node)}")


def _what(node: ast.expr) -> str:
    return "text" if isinstance(node, ast.Constant) and isinstance(node.value, str) else type(node).__name__


def _bounded(value: Any) -> Number:
    if isinstance(value, complex):
        raise CalculatorError("the result is not a real number")
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise CalculatorError("the result is too large")
        return value
    number = float(value)
    if not math.isfinite(number):
        raise CalculatorError("the result is too large" if math.isinf(number) else "the result is not a number")
    return number


def _safe(function: Callable[..., Any]) -> Callable[..., Number]:
    """``function`` with a bounded result, for those whose cost is bounded by their arguments' size."""
    return lambda *numbers: _bounded(function(*numbers))


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        # The size is known before the power is taken: |base| >= 2 ** (bit_length - 1).
        if (base.bit_length() - 1) * exponent > MAX_BITS:
            raise CalculatorError("the result is too large")
        if exponent < -MAX_BITS:
            return 0.0
    return _bounded(base**exponent)


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > 400:
        raise CalculatorError("round takes a number of digits between -400 and 400")
    return _bounded(round(number, digits) if digits else round(number))


def _factorial(number: Number) -> Number:
    if not 0 <= number <= 1_000 or number != int(number):
        raise CalculatorError("factorial takes an integer between 0 and 1000")
    return _bounded(math.factorial(int(number)))


OPERATORS: dict[type, Callable[..., Number]] = {
    ast.Add: _safe(operator.add),
    ast.Sub: _safe(operator.sub),
    ast.Mult: _safe(operator.mul),
    ast.Div: _safe(operator.truediv),
    ast.FloorDiv: _safe(operator.floordiv),
    ast.Mod: _safe(operator.mod),
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _safe(math.sqrt),
    "abs": _safe(abs),
    "min": _safe(min),
    "max": _safe(max),
    "round": _round,
    "floor": _safe(math.floor),
    "ceil": _safe(math.ceil),
    "exp": _safe(math.exp),
    "log": _safe(math.log),
    "ln": _safe(math.log),
    "log2": _safe(math.log2),
    "log10": _safe(math.log10),
    "sin": _safe(math.sin),
    "cos": _safe(math.cos),
    "tan": _safe(math.tan),
    "asin": _safe(math.asin),
    "acos": _safe(math.acos),
    "atan": _safe(math.atan),
    "radians": _safe(math.radians),
    "degrees": _safe(math.degrees),
    "gcd": _safe(math.gcd),
    "lcm": _safe(math.lcm),
    "factorial": _factorial,
}
_EVALUATOR = SimpleEval(operators=OPERATORS, functions=FUNCTIONS, names=CONSTANTS)
