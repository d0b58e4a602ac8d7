"""Who runs a run: its process holds a lock on a file in the run folder, which ends with the process, however that ends.

A PID may be another process's by now, as after the restart of a container; a lock is never left behind. Programs that
the process starts do not inherit it, and forked children let go of it at once. The file itself stays.

Where there are no such locks (another platform, some network file systems) nothing is held and nothing refused.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import ModuleType
from typing import IO

from agentfly_core.types.errors import UsageError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

NAME = ".lock"
"""Of the file in the run folder."""

TRIES, PAUSE = 10, 0.02
"""Whoever looks if the lock is held takes it for a moment: only one that stays taken is held."""

_BUSY = (errno.EAGAIN, errno.EACCES)
_held: dict[Path, IO[str]] = {}
"""The locks of this process."""


def take(folder: Path, *, shared: bool = False) -> bool:
    """Hold the run's lock until it is released or the process ends; False if another process, or thread, holds it.

    Args:
        shared: with others who ask for a shared one. Turns a lock that this process has into a shared one.

    Raises:
        UsageError: the lock's file cannot be written.
    """
    path = folder / NAME
    if path in _held and not shared:
        return True
    try:
        file = _held.get(path) or path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error}") from error
    got = _lock(file, shared=shared)
    if got:
        _held[path] = file
    elif path not in _held:
        file.close()
    return got is not False


def release(folder: Path) -> None:
    """Let go of the lock, if this process has it."""
    if (file := _held.pop(folder / NAME, None)) is not None:
        file.close()


def is_held(folder: Path) -> bool | None:
    """Whether a process, this one included, holds the run's lock; None if that cannot be known."""
    path = folder / NAME
    if path in _held:
        return True
    try:
        with _reading(path) as file:
            got = _lock(file, shared=False)
    except OSError:
        return None
    return None if got is None else not got


def _reading(path: Path) -> IO[str]:
    """The file opened for writing, which some network file systems want for a lock, if that may be."""
    try:
        return path.open("r+", encoding="utf-8")
    except OSError:
        return path.open(encoding="utf-8")


def _lock(file: IO[str], *, shared: bool) -> bool | None:
    """Whether the lock was got; None if there are no locks here."""
    if fcntl is None:
        return None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                return None
        else:
            return True
    return False


def _forget() -> None:
    for file in _held.values():
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
