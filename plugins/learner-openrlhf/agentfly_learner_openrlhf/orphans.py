"""No process of a run outlives it.

A rollout actor that is killed leaves vLLM's processes behind: each of them therefore watches its actor. When a launch
ends, the driver also ends whatever of it is left on its own machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from agentfly_learner_openrlhf.job import ENV

OWNER = "AGENTFLY_OPENRLHF_OWNER"
"""``PID:START`` of the rollout actor that a vLLM process belongs to."""

LOOK_SECONDS = 1.0


def own_children() -> None:
    """Say, to vLLM's processes that this one will start, that they belong to it."""
    os.environ[OWNER] = f"{os.getpid()}:{started(os.getpid())}"


def leave_group() -> None:
    """Put this process, and those it will start, into a process group of its own.

    Ctrl-C in a terminal goes to the command's whole group, and vLLM's engine would end at the first one, with all
    chains of the step in hand.
    """
    if os.getpgrp() != os.getpid():
        os.setpgrp()


def watch_owner() -> None:
    """End this process when its rollout actor is gone. vLLM calls this in each of its processes, as a plugin."""
    owner = os.environ.get(OWNER)
    if owner is None:
        return
    pid, start = owner.split(":")
    if int(pid) != os.getpid():
        threading.Thread(target=_watch, args=(int(pid), start), name="agentfly-owner", daemon=True).start()


def _watch(pid: int, start: str) -> None:
    while started(pid) == start:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def started(pid: int) -> str:
    """When a process was started, in clock ticks since boot; empty if it is gone, or dead and only not reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def left_of(job: Path) -> list[int]:
    """Processes on this machine that were started for a launch, this one excluded."""
    mark = f"{ENV}={job}".encode()
    return [pid for pid in _pids() if pid != os.getpid() and mark in _environment(pid) and started(pid)]


def end_left(job: Path, *, patience: float = 10.0) -> list[int]:
    """Wait for a launch's processes to end; kill those that do not, and return those that cannot be killed."""
    left = _wait(job, patience)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return _wait(job, patience) if left else []


def _wait(job: Path, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := left_of(job)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
