"""File operations, run in a child that is confined like any command of the sandbox."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable
from typing import Any

CHUNK = 64 * 1024


def read(path: str, max_bytes: int) -> None:
    """Copy the first bytes of a regular file to standard output."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    _refuse_irregular(descriptor, path)
    while max_bytes > 0:
        data = os.read(descriptor, min(CHUNK, max_bytes))
        if not data:
            return
        max_bytes -= len(data)
        write_all(1, data)


def write(path: str) -> None:
    """Copy standard input to a file, making its parents."""
    with contextlib.suppress(FileExistsError):  # no folder, as opening will say
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    _refuse_irregular(descriptor, path)
    os.ftruncate(descriptor, 0)
    while True:
        data = os.read(0, CHUNK)
        if not data:
            return
        write_all(descriptor, data)


def listing(path: str, recursive: bool, max_entries: int) -> None:
    """Print a folder's entries as JSON lines: path, kind, size, modified."""
    folders = [""]
    while folders and max_entries > 0:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(path, folder) if folder else path) as entries:
                for entry in entries:
                    if max_entries <= 0:
                        break
                    max_entries -= 1
                    inside = os.path.join(folder, entry.name)
                    info = entry.stat(follow_symlinks=False)
                    line = json.dumps([inside, _kind(info.st_mode), info.st_size, info.st_mtime])
                    write_all(1, line.encode() + b"\n")
                    if recursive and stat.S_ISDIR(info.st_mode):
                        folders.append(inside)
        except OSError:
            if not folder:
                raise  # the folder asked for; one below it that cannot be read is listed without its entries


def wipe(*folders: str) -> None:
    """Delete everything in the folders, or fail."""
    for folder in folders:
        for _, inner, _, descriptor in os.fwalk(folder):
            for name in inner:
                if stat.S_ISDIR(_mode(name, descriptor)):
                    os.chmod(name, 0o700, dir_fd=descriptor)
        for _, inner, names, descriptor in os.fwalk(folder, topdown=False):
            for name in names:
                os.unlink(name, dir_fd=descriptor)
            for name in inner:
                (os.rmdir if stat.S_ISDIR(_mode(name, descriptor)) else os.unlink)(name, dir_fd=descriptor)
        if os.listdir(folder):
            raise OSError(errno.ENOTEMPTY, "cannot be emptied", folder)


OPERATIONS: dict[str, Callable[..., None]] = {"read": read, "write": write, "list": listing, "wipe": wipe}


def perform(name: str, arguments: dict[str, Any]) -> int:
    """Run an operation; what it raises goes to standard error as JSON. The exit code."""
    try:
        OPERATIONS[name](*arguments.pop("paths", ()), **arguments)
    except OSError as error:
        write_all(2, json.dumps([error.errno or 0, error.strerror or str(error)]).encode())
        return 1
    except Exception as error:
        write_all(2, json.dumps([errno.EINVAL, f"{type(error).__name__}: {error}"]).encode())
        return 1
    return 0


def write_all(descriptor: int, data: bytes) -> None:
    """Write it all to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _refuse_irregular(descriptor: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "is no regular file", path)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _mode(name: str, parent: int) -> int:
    return os.lstat(name, dir_fd=parent).st_mode
