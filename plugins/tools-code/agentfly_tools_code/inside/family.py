"""The processes below a supervisor: none gets away from it, and none can look into it."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def become_keeper() -> None:
    """Close our descriptors and memory to others of the same user, and become the parent of orphans."""
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux
        return


def descendants() -> list[int]:
    """Processes below this one that have not been waited for: all of them, or its children where no more is shown."""
    try:
        names = os.listdir("/proc")
    except OSError:  # Landlock leaves us what is about ourselves
        return _children()
    parents: dict[int, int] = {}
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found: list[int] = []
    front = {os.getpid()}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front}
        found += front
    return found


def _children() -> list[int]:
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
        except OSError:  # a kernel that does not tell
            continue
    return found
