"""``metrics.jsonl``: one line of numbers a step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from agentfly_core.runs.files import replace_text, writing
from agentfly_core.types.errors import UsageError


class MetricsLog:
    """An append-only log. Every line is ``{"step": ..., name: number, ...}``; a number that is not finite is null.

    Only whole lines count: one that a killed writer left torn at the end is ignored when read and cut off before
    the next append.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one line and hand it to the operating system before returning.

        Raises:
            UsageError: the file cannot be written; all earlier lines stay whole.
        """
        numbers = {name: _plain(value) for name, value in metrics.items()}
        line = json.dumps({"step": step, **numbers}, allow_nan=False) + "\n"
        with writing(self.path):
            self._cut_torn_line()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)

    def read(self) -> list[dict[str, float]]:
        """All lines in order; null reads as NaN and ``step`` is an int.

        Raises:
            UsageError: a whole line is no JSON object of numbers, or the file cannot be read.
        """
        return [self._row(number, text) for number, text in enumerate(self._whole_lines(), 1)]

    def rewind(self, step: int) -> None:
        """Drop the lines of every step after ``step``."""
        whole = self._whole_lines()
        kept = [line for number, line in enumerate(whole, 1) if self._row(number, line)["step"] <= step]
        if self.path.exists():
            replace_text(self.path, "".join(f"{line}\n" for line in kept))

    def _whole_lines(self) -> list[str]:
        if not self.path.exists():
            return []
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error}") from error

    def _row(self, number: int, text: str) -> dict[str, float]:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            raise UsageError(f"{self.path}:{number}: expected an object with a step, got {text[:80]!r}")
        for name, value in row.items():
            if not isinstance(value, int | float | None):
                raise UsageError(f"{self.path}:{number}: {name}: expected a number, got {value!r:.80}")
        return {name: math.nan if value is None else value for name, value in row.items()}

    def _cut_torn_line(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def _plain(value: float) -> float | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None
