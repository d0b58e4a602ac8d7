"""Ending processes, whatever they have done to get away."""

from __future__ import annotations

import os
import signal


def kill_group(pid: int) -> None:
    """Kill a child, not collected yet, with the process group that it leads; at its very start it leads none."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def kill_below(uid: int | None) -> None:
    """Kill every other process of the sandbox, in one stroke if it has a namespace or a user id of its own.

    Otherwise the direct children: as their subreaper the caller inherits those below, for the next call.
    """
    if os.getpid() == 1:
        _kill_everybody()
    elif uid:
        pid = os.fork()
        if pid == 0:
            try:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                if os.getuid() == uid:
                    _kill_everybody()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    else:
        for child in _children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended by itself


def shared_memory_of(uid: int) -> bool:
    """Whether System V objects of a user exist: they outlive processes. False where /proc does not tell."""
    for name, column in (("shm", 7), ("sem", 4), ("msg", 7)):
        try:
            with open(f"/proc/sysvipc/{name}") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        if any(len(row) > column and row[column] == str(uid) for row in rows):
            return True
    return False


def _kill_everybody() -> None:
    """All that this process may signal, but not itself nor process 1; the kernel lets none slip through by forking."""
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left


def _children() -> list[int]:
    me = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name, in parentheses, may hold anything: the parent is the second field after it.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it has ended meanwhile
            if parent == me:
                found.append(int(name))
    return found
