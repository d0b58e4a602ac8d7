"""Which runs live on this machine: each holds a lock on a file of its own, which ends with its process.

A mark whose lock is free belongs to a run that crashed; its lines name the kinds of resources that may be left of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

FOLDER_VARIABLE = "AGENTFLY_STATE_DIR"
"""Names another folder than ``~/.local/state/agentfly`` (or ``$XDG_STATE_HOME/agentfly``)."""


def marks_folder() -> Path:
    """Where the marks of this user's runs on this machine lie."""
    state = os.environ.get(FOLDER_VARIABLE)
    base = (
        Path(state) if state else Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "agentfly"
    )
    return base / "runs" / re.sub(r"[^A-Za-z0-9._-]", "-", platform.node() or "localhost")


class RunMark:
    """Says that a run lives, until it is removed or its process ends."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._lock = threading.Lock()
        self._kinds: set[str] = set()
        self._file: IO[str] | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """What has been noted."""
        return frozenset(self._kinds)

    def uses(self, kind: str) -> bool:
        """Note that instances of this kind will exist, before the first does; True the first time.

        Raises:
            OSError: the folder of marks cannot be written.
        """
        if kind in self._kinds:
            return False
        with self._lock:
            if kind in self._kinds:
                return False
            if self._file is None:
                self._file = _make(_path(self.run_id))
            self._kinds.add(kind)
            self._file.write(f"{kind}\n")
            self._file.flush()
        return True

    def remove(self) -> None:
        """Nothing is left of the run."""
        with self._lock:
            if self._file is not None:
                _path(self.run_id).unlink(missing_ok=True)
                self._file.close()
            self._file, self._kinds = None, set()


@contextlib.contextmanager
def crashed_runs() -> Iterator[dict[str, frozenset[str]]]:
    """run id -> kinds of which something may be left. Nobody else sweeps these while the block runs."""
    held: dict[str, IO[str]] = {}
    try:
        for path in sorted(marks_folder().glob("*.run")):
            with contextlib.suppress(OSError):  # it lives, or another sweeps it, or has just finished
                held[path.stem] = _hold(path)
        yield {run: frozenset(_kinds(file)) for run, file in held.items()}
    finally:
        for file in held.values():
            file.close()


def swept(run_id: str, kinds: frozenset[str]) -> None:
    """Nothing of these kinds is left of a crashed run; without any other its mark goes. Within ``crashed_runs``."""
    path = _path(run_id)
    left = [kind for kind in path.read_text().split() if kind not in kinds]
    if left:
        path.write_text("".join(f"{kind}\n" for kind in left))
    else:
        path.unlink(missing_ok=True)


def living_runs() -> frozenset[str]:
    """Ids of the runs whose process is alive here."""
    with crashed_runs() as crashed:
        return frozenset(path.stem for path in marks_folder().glob("*.run")) - crashed.keys()


def _path(run_id: str) -> Path:
    return marks_folder() / f"{re.sub(r'[^A-Za-z0-9._-]', '-', run_id)}.run"


def _make(path: Path) -> IO[str]:
    """A new mark, locked. Should a sweeper take it for a dead one before it is locked, it is made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a+", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _hold(path: Path) -> IO[str]:
    """A mark of whose run no process lives, locked. Children do not inherit the lock.

    Raises:
        OSError: somebody else holds it, or it is not there any more.
    """
    file = path.open("r+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(file.fileno()).st_nlink:
            raise FileNotFoundError(path)
    except BaseException:
        file.close()
        raise
    return file


def _kinds(file: IO[str]) -> list[str]:
    file.seek(0)
    return file.read().split()
