"""The expressions inside a game's text rules, such as ``o.indefinite + ' ' + o.name``.

A game file is data from elsewhere. The stock engine hands these to ``eval`` as they stand; here only names,
attributes, texts, ``+`` and ``or`` are let through.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from types import CodeType
from typing import Any

from agentfly_core.types import UsageError

_ALLOWED = (ast.Expression, ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.Add, ast.BoolOp, ast.Or, ast.Load)


def evaluate(expression: str, variables: Mapping[str, Any]) -> str:
    """The expression's text.

    Raises:
        UsageError: it holds anything but names, public attributes, texts, ``+`` and ``or``, or an unknown name.
    """
    try:
        return str(eval(_compiled(expression), {"__builtins__": {}}, dict(variables)))
    except (NameError, AttributeError, TypeError) as error:
        raise UsageError(f"a text rule of the game cannot be evaluated: {expression!r:.100}: {error}") from error


@functools.lru_cache(maxsize=256)
def _compiled(expression: str) -> CodeType:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"a text rule of the game is no expression: {expression!r:.100}") from error
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if hidden or not isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and type(node.value) is not str):
            raise UsageError(f"a text rule of the game does more than read names: {expression!r:.100}")
    return compile(tree, "<text rule>", "eval")
