"""What sandboxed processes leave on this machine, by run, so that a crashed run's can be swept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path
from urllib.parse import quote, unquote

from agentfly_core.resources.sandboxes import cgroups, uids
from agentfly_core.types import ResourceError

MARK = "AGENTFLY_SANDBOX"
"""In the environment of every sandbox's first process, and of all where nothing better tells them apart: its full
name."""
SEPARATOR = "~"
SWEEP_SECONDS = 30.0
"""What killed processes may take to end."""
FORCE = 'chmod -R u+rwx -- "$1"; rm -rf -- "$1"'


def full_name(run_id: str, name: str) -> str:
    """Run and name of a sandbox in one word that is fit for a file name."""
    return f"{quote(run_id, safe='')}{SEPARATOR}{name}"


def run_of(full: str) -> str:
    """The run in a full name."""
    return unquote(full.partition(SEPARATOR)[0])


def make_folder(full: str, uid: int | None) -> Path:
    """A new folder with ``workspace`` and ``tmp`` that belong to the sandbox.

    Raises:
        ResourceError: somebody else has taken the place where our folders lie.
    """
    base = _base()
    base.mkdir(mode=0o711, exist_ok=True)
    info = base.lstat()
    if info.st_uid != os.getuid() or base.is_symlink():
        raise ResourceError(f"{base} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    folder = base / full
    folder.mkdir(mode=0o711)
    try:
        for name in ("workspace", "tmp"):
            (folder / name).mkdir(mode=0o700)
            if uid is not None:
                os.chown(folder / name, uid, uid)
        (folder / "sandbox.json").write_text(json.dumps({"uid": uid}))
    except BaseException:
        remove_folder(folder)
        raise
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a sandbox's folder, whatever its code has made of it: no rights, or deeper than Python's own can go."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        subprocess.run(["/bin/sh", "-c", FORCE, "sh", str(folder)], check=False, stderr=subprocess.DEVNULL)


def runs() -> frozenset[str]:
    """Runs of which a process, a folder or a control group exists."""
    full = {name for name, _ in _processes()} | {folder.name for folder in _folders()}
    full |= {folder.name[len(cgroups.PREFIX) :] for folder in cgroups.leftovers("") if SEPARATOR in folder.name}
    return frozenset(map(run_of, full))


def sweep(run_id: str, *, live: Set[str], seconds: float = 10.0) -> int:
    """End what a run left, except for the sandboxes that live here; how many there were.

    Raises:
        ResourceError: a process cannot be killed.
    """
    found = {name for name, _ in _processes() if run_of(name) == run_id and name not in live}
    end_marked(found, seconds=seconds)
    folders = [f for f in _folders() if run_of(f.name) == run_id and f.name not in live]
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            uid = json.loads((folder / "sandbox.json").read_text())["uid"]
            if uid is not None:
                uids.kill_user(uid, seconds=SWEEP_SECONDS)
        remove_folder(folder)
    groups = [g for g in cgroups.leftovers(full_name(run_id, "")) if g.name[len(cgroups.PREFIX) :] not in live]
    cgroups.remove_folders(groups, seconds=SWEEP_SECONDS)
    return len({*found, *(f.name for f in folders), *(g.name[len(cgroups.PREFIX) :] for g in groups)})


def end_marked(names: Set[str], *, seconds: float = 10.0) -> None:
    """Ask the supervisors of these sandboxes, which end all that is below them; kill what does not end.

    Raises:
        ResourceError: a process cannot be killed.
    """
    begun = time.monotonic()
    while found := [pid for name, pid in _processes() if name in names]:
        waited = time.monotonic() - begun
        if waited > seconds:
            raise ResourceError(f"processes {found[:5]} of sandboxes cannot be ended")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < seconds / 4 else signal.SIGKILL)
        time.sleep(0.02)


def _base() -> Path:
    return Path(tempfile.gettempdir()) / f"agentfly-sandboxes-{os.getuid()}"


def _folders() -> list[Path]:
    base = _base()
    return [folder for folder in base.iterdir() if SEPARATOR in folder.name] if base.is_dir() else []


def _processes() -> Iterator[tuple[str, int]]:
    """(full name, pid) of every process with a mark; nothing without /proc."""
    mark = f"{MARK}=".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (folder / "environ").read_bytes().split(b"\0"):
                if line.startswith(mark) and int(folder.name) != os.getpid():
                    yield line[len(mark) :].decode(errors="replace"), int(folder.name)
