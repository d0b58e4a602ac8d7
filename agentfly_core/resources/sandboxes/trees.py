"""Ending a process with everything below it, also one that is stopped and ends nothing itself any more."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from agentfly_core.types import ResourceError


def kill_tree(root: int, *, seconds: float) -> None:
    """Kill what is below a child of ours and then itself; it is left to be collected. Needs /proc.

    The root goes last: if it is a subreaper, nothing can leave the tree before.

    Raises:
        ResourceError: some of it cannot be killed.
    """
    deadline = time.monotonic() + seconds
    seen: dict[int, str] = {}
    while True:
        rows = {pid: (parent, began) for pid, parent, began in _processes()}
        seen.update({pid: rows[pid][1] for pid in _below(root, rows)})
        left = [pid for pid, began in seen.items() if pid in rows and rows[pid][1] == began]
        if not left:
            break
        if time.monotonic() > deadline:
            raise ResourceError(f"processes {left[:5]} below process {root} cannot be killed")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.kill(root, signal.SIGKILL)


def _below(root: int, rows: dict[int, tuple[int, str]]) -> set[int]:
    found: set[int] = set()
    front = {root}
    while front:
        front = {pid for pid, (parent, _) in rows.items() if parent in front} - found
        found |= front
    return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """(pid, parent, when it began) of every process that has not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything: the state is the field after it.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                yield int(folder.name), int(fields[1]), fields[19].decode()
