"""User ids that belong to one sandbox at a time, over all runs on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from agentfly_core.types import ResourceError

FIRST, COUNT = 1_900_000_000, 8192
"""Above what distributions, containers and directory services give out, below 2 ** 31."""
LOCKS = Path("/run/agentfly-uids")


class PrivateUid:
    """A user id that nobody else uses while this is held.

    Raises:
        ResourceError: none is left.
    """

    def __init__(self) -> None:
        LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = random.randrange(COUNT)
        for offset in range(COUNT):
            self.number = FIRST + (start + offset) % COUNT
            self._lock = os.open(LOCKS / str(self.number), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                continue
            try:
                kill_user(self.number)  # a crashed run may have left processes with it
            except BaseException:
                os.close(self._lock)
                raise
            return
        raise ResourceError(f"all {COUNT} user ids for sandboxes are in use")

    def release(self) -> None:
        """Give it back."""
        os.close(self._lock)


def kill_user(uid: int, *, seconds: float = 5.0) -> int:
    """Kill all processes of a user until none is left; how many were found at first.

    Raises:
        ResourceError: some cannot be killed.
    """
    found = processes_of(uid)
    first = len(found)
    deadline = time.monotonic() + seconds
    while found:
        if time.monotonic() > deadline:
            raise ResourceError(f"processes {found[:5]} of user {uid} cannot be killed")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
        found = processes_of(uid)
    return first


def processes_of(uid: int) -> list[int]:
    """Processes of a user that have not ended."""
    return [pid for pid, user, state, _ in _processes() if user == uid and state not in "ZX"]


def threads_of(uid: int) -> int:
    """How many threads a user has: what RLIMIT_NPROC counts."""
    return sum(threads for _, user, _, threads in _processes() if user == uid)


def _processes() -> Iterator[tuple[int, int, str, int]]:
    """(pid, real user id, state, threads) of every process; nothing without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":", 1)
                for line in (folder / "status").read_text(errors="replace").splitlines()
                if ":" in line
            )
            threads = int(fields.get("Threads", "1"))
            yield int(folder.name), int(fields["Uid"].split()[0]), fields["State"].split()[0], threads
