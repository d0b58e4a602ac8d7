"""Descriptions from docstrings: the summary and each parameter's text, in Google, NumPy or reST style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

_PARAMETERS = {"args", "arguments", "params", "parameters", "other parameters", "keyword args", "keyword arguments"}
_OTHERS = {
    "attributes", "example", "examples", "methods", "note", "notes", "raises", "receives", "references", "return",
    "returns", "see also", "warning", "warnings", "warns", "yield", "yields",
}  # fmt: skip
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST = re.compile(r":(\w+)(?:\s+([^:]*?))?:\s*(.*)")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description (everything before the first section) and the parameters' descriptions, by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    i = 0
    while i < len(lines):
        if title := _section_at(lines, i):
            numpy = i + 1 < len(lines) and _is_rule(lines[i + 1])
            i += 2 if numpy else 1
            end = _section_end(lines, i, numpy)
            if title in _PARAMETERS:
                parameters.update(_numpy(lines[i:end]) if numpy else _google(lines[i:end]))
            i = end
        elif match := _REST.match(lines[i]):
            end = i + 1
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            if match[1] in ("param", "parameter", "arg", "argument") and match[2]:
                parameters[match[2].split()[-1].lstrip("*")] = _join([match[3], *lines[i + 1 : end]])
            i = end
        else:
            if not parameters:
                description.append(lines[i])
            i += 1
    return "\n".join(description).strip(), {name: text for name, text in parameters.items() if text}


def _section_at(lines: list[str], i: int) -> str:
    line = lines[i].rstrip()
    title = line.rstrip(":").strip().lower()
    if line.startswith(" ") or title not in _PARAMETERS | _OTHERS:
        return ""
    followed = i + 1 < len(lines) and (_is_rule(lines[i + 1]) or lines[i + 1].startswith(" "))
    return title if followed and (line.endswith(":") or _is_rule(lines[i + 1])) else ""


def _section_end(lines: list[str], start: int, numpy: bool) -> int:
    for i in range(start, len(lines)):
        if _section_at(lines, i) or (not numpy and lines[i].strip() and not lines[i].startswith(" ")):
            return i
    return len(lines)


def _is_rule(line: str) -> bool:
    return len(line.strip()) >= 3 and not line.strip().strip("-")


def _google(lines: list[str]) -> dict[str, str]:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return _entries((line[indent:] for line in lines), _GOOGLE, text_on_head=True)


def _numpy(lines: list[str]) -> dict[str, str]:
    return _entries(lines, _NUMPY, text_on_head=False)


def _entries(lines: Iterable[str], head: re.Pattern[str], *, text_on_head: bool) -> dict[str, str]:
    """Entries begin on an unindented line; indented and empty lines belong to the one above."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        match = None if line.startswith(" ") else head.match(line)
        if match:
            names = [name.strip().lstrip("*") for name in match[1].split(",")]
            found.update((name, [match[2]] if text_on_head else []) for name in names)
        else:
            for name in names:
                found[name].append(line)
    return {name: _join(texts) for name, texts in found.items()}


def _join(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
