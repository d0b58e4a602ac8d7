"""Fenced code in what a model wrote, as CommonMark reads it, with leave to indent a fence by any amount."""

from __future__ import annotations

import ast
import re

_OPEN = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n`]*$", re.MULTILINE)
PYTHON = frozenset({"", "python", "py", "python3", "tool_code"})
"""Languages that are taken for Python."""


def blocks(text: str) -> list[tuple[str, str, bool]]:
    """(language, code, whether its fence is closed) of each fenced block, in order.

    A closing fence is at least as long as the opening one, has nothing after it and is indented by at most three spaces
    more: text of the code that looks like a fence closes nothing where it is indented with the code. Code loses as much
    indentation as its opening fence has.
    """
    found = []
    at = 0
    while opening := _OPEN.search(text, at):
        fence = opening[1]
        column = len(text[opening.start() : opening.start(1)].expandtabs(4))
        closing = re.compile(rf"^([ \t]*){fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
        begin = min(opening.end() + 1, len(text))
        ends = (m for m in closing.finditer(text, begin) if len(m[1].expandtabs(4)) <= column + 3)
        end = next(ends, None)
        code = text[begin : end.start() if end else len(text)]
        found.append((opening[2].lower(), _dedent(code, column), end is not None))
        at = end.end() if end else len(text)
    return found


def python_blocks(text: str) -> list[str]:
    """The code of each closed block of Python."""
    return [code for language, code, closed in blocks(text) if closed and language in PYTHON]


def answer_block(text: str) -> str:
    """The code that a response hands in: its last block of Python, empty if there is none.

    One whose language is named comes before those without a name, and of those one that does something before one that
    only shows a value, which is an example of the output.
    """
    found = [(language, code) for language, code, closed in blocks(text) if closed and language in PYTHON]
    named = [code for language, code in found if language]
    unnamed = [code for _, code in found]
    candidates = named or [code for code in unnamed if _does_something(code)] or unnamed
    return candidates[-1] if candidates else ""


def unfence(code: str) -> str:
    """Code that a model wrapped into a fence as a whole, without the fence."""
    text = code.strip()
    found = blocks(text)
    if len(found) == 1 and text.startswith(("```", "~~~")) and found[0][0] in PYTHON and found[0][2]:
        return found[0][1] if text.endswith(("```", "~~~")) else code
    return code


def _dedent(code: str, column: int) -> str:
    """Code without up to so many columns of white space before each line."""
    if not column:
        return code
    return "".join(_without(line, column) for line in code.splitlines(keepends=True))


def _without(line: str, column: int) -> str:
    width = at = 0
    while at < len(line) and line[at] in " \t" and width < column:
        width += 4 - width % 4 if line[at] == "\t" else 1
        at += 1
    return " " * max(width - column, 0) + line[at:]


def _does_something(code: str) -> bool:
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = (ast.Call, ast.BinOp)
    return any(not isinstance(s, ast.Expr) or any(isinstance(n, calls) for n in ast.walk(s)) for s in body)
