"""Control groups, version 1 and 2: limits that hold for all processes of a sandbox together."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import cache
from pathlib import Path

from agentfly_core.resources.sandboxes.plan import Limits
from agentfly_core.types import ResourceError

CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "agentfly-"
PERIOD = 100_000
"""Microseconds over which a share of the CPU is counted."""
OVERHEAD = 3
"""Processes of ours that a sandbox's group holds as well."""


class ControlGroup:
    """Folders under /sys/fs/cgroup, one a controller (version 1) or one for all (version 2).

    Raises:
        OSError: it cannot be made or limited.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        parents = _parents()
        self.folders = [parent / f"{PREFIX}{name}" for parent in sorted(set(parents.values()))]
        try:
            for folder in self.folders:
                folder.mkdir(exist_ok=True)
            for controller, parent in parents.items():
                _limit(controller, parent / f"{PREFIX}{name}", limits)
        except OSError:
            self.remove()
            raise

    def joining(self) -> list[str]:
        """The files into which a process writes its id to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def unthrottle(self) -> None:
        """Let its processes have all the CPU that they need to end."""
        _unthrottle(self.folders)

    def remove(self, *, seconds: float = 5.0) -> None:
        """Kill what is left in it and remove it.

        Raises:
            ResourceError: a process cannot be killed.
        """
        remove_folders(self.folders, seconds=seconds)


def remove_folders(folders: list[Path], *, seconds: float = 5.0) -> None:
    """Kill what is left in control groups and remove them.

    Raises:
        ResourceError: a process cannot be killed.
    """
    _unthrottle(folders)
    deadline = time.monotonic() + seconds
    for folder in folders:
        while folder.exists():
            with contextlib.suppress(FileNotFoundError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:  # busy until the last process is gone
                if time.monotonic() > deadline:
                    raise ResourceError(f"the control group {folder} cannot be removed: {error}") from error
                time.sleep(0.005)


def leftovers(prefix: str) -> list[Path]:
    """Groups whose name begins so."""
    if not available():
        return []
    return [f for parent in set(_parents().values()) for f in parent.glob(f"{PREFIX}{prefix}*") if f.is_dir()]


@cache
def available() -> bool:
    """Whether a group can be made here and takes limits: tried."""
    try:
        group = ControlGroup(f"trial-{os.getpid()}", Limits())
    except (OSError, KeyError):
        return False
    group.remove()
    return True


def _unthrottle(folders: list[Path]) -> None:
    for folder in folders:
        for name, value in (("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")):
            with contextlib.suppress(OSError):
                if (folder / name).exists():
                    (folder / name).write_text(value)


@cache
def _parents() -> dict[str, Path]:
    """Controller -> our own group's folder, under which new ones are made.

    Raises:
        KeyError: a controller is not mounted.
    """
    mounts: dict[str, tuple[Path, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, point = left.split()[3:5]
        if kind == "cgroup":
            mounts.update({c: (Path(point), root) for c in options.split()[-1].split(",") if c in CONTROLLERS})
        elif kind == "cgroup2" and "memory" in (Path(point) / "cgroup.controllers").read_text().split():
            mounts.update({c: (Path(point), root) for c in ("", *CONTROLLERS)})
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    unified = "" in mounts
    return {c: _inside(*mounts[c], own["" if unified else c]) for c in CONTROLLERS}


def _inside(point: Path, root: str, path: str) -> Path:
    """Where a group's path lies under a mount that may show only a part of the hierarchy."""
    relative = os.path.relpath(path, root)
    return point if relative.startswith("..") else point / relative


def _limit(controller: str, folder: Path, limits: Limits) -> None:
    old = (folder / "memory.limit_in_bytes").exists() or (folder / "cpu.cfs_quota_us").exists()
    size, quota = limits.memory << 20, round(limits.cpu * PERIOD)
    if controller == "pids":
        _write(folder / "pids.max", limits.pids + OVERHEAD)
    elif controller == "memory" and old:
        _write(folder / "memory.limit_in_bytes", size)
        if (folder / "memory.memsw.limit_in_bytes").exists():
            _write(folder / "memory.memsw.limit_in_bytes", size)
    elif controller == "memory":
        _write(folder / "memory.max", size)
        if (folder / "memory.swap.max").exists():
            _write(folder / "memory.swap.max", 0)
    elif old:
        _write(folder / "cpu.cfs_period_us", PERIOD)
        _write(folder / "cpu.cfs_quota_us", quota)
    else:
        _write(folder / "cpu.max", f"{quota} {PERIOD}")


def _write(file: Path, value: object) -> None:
    if not file.exists():
        raise FileNotFoundError(f"{file}: the controller is not enabled here")
    file.write_text(str(value))
