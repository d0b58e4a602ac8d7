"""File operations that stay below one folder, whatever links lie in it and whoever moves them meanwhile."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from agentfly_tools_code.inside.wire import receive, send

MAX_BYTES = 2_000_000
"""Of a file that is read, edited or searched."""
BINARY = b"\0"


class Refused(Exception):
    """What cannot be done, in words for the model."""


def main() -> None:
    """Answer requests, JSON objects, until standard input ends. The command line names the folder."""
    folder = Folder(sys.argv[1])
    while True:
        try:
            request = json.loads(receive(0))
        except EOFError:
            return
        send(1, json.dumps(answer(folder, request)).encode())


def answer(folder: Folder, request: dict[str, Any]) -> dict[str, Any]:
    """What the operation ``request["do"]`` gives, or ``{"error": ...}``."""
    try:
        return OPERATIONS[request.pop("do")](folder, **request)
    except Refused as error:
        return {"error": str(error)}
    except (OSError, MemoryError, RecursionError) as error:
        return {"error": getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"}


class Folder:
    """A folder that paths are confined to."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def resolve(self, path: str) -> list[str]:
        """The names that lead from the root to where ``path`` really lies.

        Raises:
            Refused: that is outside.
        """
        if "\0" in path:
            raise Refused("a path cannot contain a null character")
        real = os.path.realpath(os.path.join(self.root, path))
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise Refused(f"{path} lies outside of the workspace {self.root}")
        relative = os.path.relpath(real, self.root)
        return [] if relative == "." else relative.split("/")

    def open(self, path: str, flags: int, *, parents: bool = False) -> int:
        """A descriptor of a file below the root. No link is followed on the way, for it was resolved before."""
        *folders, name = self.resolve(path) or ["."]
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if parents:
                    _make_folder(folder, fd)
                step = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                os.close(fd)
                fd = step
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666, dir_fd=fd)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        """A regular file of at most ``MAX_BYTES``."""
        fd = self.open(path, os.O_RDONLY)
        try:
            kind = os.fstat(fd)
            if stat.S_ISDIR(kind.st_mode):
                raise Refused(f"{path} is a folder")
            if not stat.S_ISREG(kind.st_mode):
                raise Refused(f"{path} is no regular file")
            if kind.st_size > MAX_BYTES:
                raise Refused(f"{path} has {kind.st_size} bytes; at most {MAX_BYTES} can be read")
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read(MAX_BYTES)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        """Write a regular file, making its folders. A failure, be it a full disk, leaves the old one as it was."""
        names = self.resolve(path)
        if not names:
            raise Refused(f"{path} is the workspace itself")
        above, name = "/".join(names[:-1]), names[-1]
        mode = self._mode(path)
        new = f".{secrets.token_hex(8)}.new"
        fd = self.open(f"{above}/{new}" if above else new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, parents=True)
        folder = self.open(above or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None:
                    os.fchmod(fd, mode)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise
        finally:
            os.close(folder)

    def _mode(self, path: str) -> int | None:
        """Of a regular file that may be written, None where there is none."""
        try:
            fd = self.open(path, os.O_WRONLY)
        except FileNotFoundError:
            return None
        try:
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        if not stat.S_ISREG(mode):
            raise Refused(f"{path} is no regular file")
        return stat.S_IMODE(mode)

    def files(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below a folder, sorted, links not followed: (path relative to the root, status)."""
        start = "/".join(self.resolve(path))
        yield from _walk(os.path.join(self.root, start) if start else self.root, start)


def _make_folder(name: str, fd: int) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        return


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        relative = f"{prefix}/{entry.name}" if prefix else entry.name
        status = entry.stat(follow_symlinks=False)
        yield relative, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(entry.path, relative)


def _text(path: str, data: bytes) -> str:
    if BINARY in data:
        raise Refused(f"{path} is a binary file of {len(data)} bytes")
    return data.decode("utf-8", "replace")


def _exact(path: str, data: bytes) -> str:
    """Text that can be written back as it was."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{path} is not UTF-8 text; it cannot be edited") from None


def read(folder: Folder, path: str, start: int, end: int | None) -> dict[str, Any]:
    """Lines ``start`` to ``end``, from 1, both included."""
    lines = _text(path, folder.read(path)).splitlines(keepends=True)
    if start > max(1, len(lines)):
        raise Refused(f"{path} has only {len(lines)} lines")
    return {"text": "".join(lines[start - 1 : end]), "lines": len(lines)}


def write(folder: Folder, path: str, text: str) -> dict[str, Any]:
    """A whole new content; the old one comes back in base64, or null."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise Refused(f"{len(data)} bytes are too many; at most {MAX_BYTES} can be written")
    try:
        before = folder.read(path)
    except FileNotFoundError:
        before = None
    folder.write(path, data)
    return {"before": None if before is None else base64.b64encode(before).decode(), "size": len(data)}


def edit(folder: Folder, path: str, old: str, new: str, every: bool) -> dict[str, Any]:
    """Replace text that occurs exactly once, or every occurrence."""
    before = folder.read(path)
    text = _exact(path, before)
    count = text.count(old)
    if count == 0:
        raise Refused(f"the text to replace does not occur in {path}; it must match exactly, white space included")
    if count > 1 and not every:
        raise Refused(f"the text to replace occurs {count} times in {path}; give more of what is around it")
    line = text[: text.index(old)].count("\n") + 1
    folder.write(path, text.replace(old, new).encode())
    return {"before": base64.b64encode(before).decode(), "count": count, "line": line}


def restore(folder: Folder, path: str, data: str | None) -> dict[str, Any]:
    """An earlier content, or none: the file is removed."""
    if data is not None:
        folder.write(path, base64.b64decode(data))
        return {}
    *above, name = folder.resolve(path) or ["."]
    fd = folder.open("/".join(above) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    return {}


def entries(folder: Folder, path: str, recursive: bool, limit: int) -> dict[str, Any]:
    """Names below a folder with their sizes."""
    depth = len(folder.resolve(path))
    found: list[list[Any]] = []
    for name, status in folder.files(path):
        if not recursive and name.count("/") > depth:
            continue
        if len(found) == limit:
            return {"entries": found, "more": True}
        kind = "/" if stat.S_ISDIR(status.st_mode) else "@" if stat.S_ISLNK(status.st_mode) else ""
        found.append([name + kind, status.st_size])
    return {"entries": found, "more": False}


def search(folder: Folder, pattern: str, path: str, names: str, limit: int) -> dict[str, Any]:
    """Lines that match a regular expression: [path, number, line]."""
    try:
        expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused(f"the pattern is no regular expression: {error}") from None
    found: list[list[Any]] = []
    for name, status in folder.files(path):
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            continue
        if not fnmatch.fnmatch(name.rpartition("/")[2], names):
            continue
        try:
            data = folder.read(name)
        except (OSError, Refused):  # unreadable, or gone meanwhile
            continue
        if BINARY in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if expression.search(line):
                if len(found) == limit:
                    return {"matches": found, "more": True}
                found.append([name, number, line[:300]])
    return {"matches": found, "more": False}


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "read": read, "write": write, "edit": edit, "restore": restore, "list": entries, "search": search,
}  # fmt: skip


if __name__ == "__main__":
    main()
