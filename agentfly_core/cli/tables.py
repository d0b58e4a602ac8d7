"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentfly_core.runs import RunFolder


def evaluations(folder: RunFolder) -> list[dict[str, Any]]:
    """One row for each evaluation of a run and mode."""
    return [row for line in folder.metrics.read() for row in evaluation_rows(line, step=int(line["step"]))]


def evaluation_rows(metrics: Mapping[str, float], **first: Any) -> list[dict[str, Any]]:
    """The metrics ``eval/MODE/NAME`` as one row a mode, beginning with the columns ``first``."""
    rows: dict[str, dict[str, Any]] = {}
    for name, value in metrics.items():
        if len(parts := name.split("/", 2)) == 3 and parts[0] == "eval":
            _, mode, short = parts
            rows.setdefault(mode, {**first, "mode": mode})[short] = value
    return list(rows.values())
