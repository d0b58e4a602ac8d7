"""``status.json``: what a run is doing, or how it ended."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from agentfly_core.runs.files import replace_text
from agentfly_core.types.errors import UsageError

State: TypeAlias = Literal["running", "finished", "stopped", "failed"]

SILENCE = 900.0
"""Seconds without an update after which a running run on another host counts as stale."""

_YEAR_10000 = 253_000_000_000


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run's state as last written.

    Attributes:
        state: ``running``; ``finished`` (all steps), ``stopped`` (on request, can be resumed) or ``failed``.
        step: last finished step.
        pid, host: of the process that runs it.
        started, updated: seconds since the epoch.
        error: one line, if it failed.
    """

    state: State
    step: int = 0
    pid: int = 0
    host: str = ""
    started: float = 0.0
    updated: float = 0.0
    error: str = ""

    def stale(self, held: bool | None = None) -> bool:
        """It says ``running`` but nobody runs it: its process is gone, or a foreign host has long been silent.

        Args:
            held: whether a process of this host holds the run's lock, if that is known.
        """
        if self.state != "running":
            return False
        if self.host == platform.node():
            return not (_alive(self.pid) if held is None else held)
        return time.time() - self.updated > SILENCE


def read_status(path: Path) -> RunStatus:
    """The status written last.

    Raises:
        UsageError: the file is missing or not a status.
    """
    try:
        return _checked(RunStatus(**json.loads(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        raise UsageError(f"{path.parent} is no run folder: it has no {path.name}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def write_status(path: Path, status: RunStatus) -> None:
    """Replace the file atomically."""
    replace_text(path, json.dumps(asdict(status), indent=2) + "\n")


def _checked(status: RunStatus) -> RunStatus:
    if status.state not in get_args(State):
        raise ValueError(f"state: {status.state!r} is none of {', '.join(get_args(State))}")
    for name in ("step", "pid"):
        if type(value := getattr(status, name)) is not int:
            raise TypeError(f"{name}: expected a whole number, got {value!r}")
    for name in ("started", "updated"):
        if type(value := getattr(status, name)) not in (int, float) or not 0 <= value < _YEAR_10000:
            raise TypeError(f"{name}: expected seconds since the epoch, got {value!r}")
    for name in ("host", "error"):
        if not isinstance(value := getattr(status, name), str):
            raise TypeError(f"{name}: expected text, got {value!r}")
    return status


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
