"""Fenced code in what a model wrote."""

from __future__ import annotations

import re

_OPEN = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n`]*$", re.MULTILINE)
PYTHON = frozenset({"", "python", "py", "python3", "tool_code"})
"""Languages that are taken for Python."""


def blocks(text: str) -> list[tuple[str, str, bool]]:
    """(language, code, whether its fence is closed) of each fenced block, in order."""
    found = []
    at = 0
    while opening := _OPEN.search(text, at):
        fence = opening[1]
        closing = re.compile(rf"^[ \t]*{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
        begin = min(opening.end() + 1, len(text))
        end = closing.search(text, begin)
        code = text[begin : end.start() if end else len(text)]
        found.append((opening[2].lower(), code, end is not None))
        at = end.end() if end else len(text)
    return found


def python_blocks(text: str) -> list[str]:
    """The code of each closed block of Python."""
    return [code for language, code, closed in blocks(text) if closed and language in PYTHON]


def unfence(code: str) -> str:
    """Code that a model wrapped into a fence as a whole, without the fence."""
    text = code.strip()
    found = blocks(text)
    if len(found) == 1 and text.startswith(("```", "~~~")) and found[0][0] in PYTHON and found[0][2]:
        return found[0][1] if text.endswith(("```", "~~~")) else code
    return code
