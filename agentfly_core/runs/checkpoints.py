"""Checkpoints: folders ``step-000010`` that are either whole or not there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from agentfly_core.runs.files import replace_folder, sweep_partial, writing

_NAME = re.compile(r"step-(\d{6,})")


class Checkpoints:
    """The checkpoints of one run. One process writes; any may read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Let ``write`` fill an empty folder and keep it as the checkpoint of ``step``, replacing an earlier one."""
        target = self.path / f"step-{step:06d}"
        with writing(target):
            self.path.mkdir(exist_ok=True)
            sweep_partial(self.path)
        replace_folder(target, write)
        return target

    def all(self) -> list[tuple[int, Path]]:
        """(step, folder) of every checkpoint, oldest first."""
        if not self.path.is_dir():
            return []
        found = ((_NAME.fullmatch(folder.name), folder) for folder in self.path.iterdir() if folder.is_dir())
        return sorted((int(match[1]), folder) for match, folder in found if match)

    def latest(self) -> tuple[int, Path] | None:
        """(step, folder) of the newest, or None."""
        every = self.all()
        return every[-1] if every else None

    def prune(self, keep: int) -> None:
        """Delete all but the newest ``keep`` (at least 1)."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        for _, folder in self.all()[:-keep]:
            shutil.rmtree(folder)
