"""Replacing files and folders so that a reader, or a killed writer, never meets half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from agentfly_core.types.errors import AgentFlyError, UsageError

TEMPORARY = ".partial-"
"""Prefix of everything that is not finished; safe to delete once its writer is gone."""

FULL_BYTES = 1 << 16
"""With less than this free, a failed write is put down to the full disk."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Any failure of the disk in the block is about ``path``.

    Raises:
        UsageError: the disk is full, read-only, or fails otherwise.
    """
    try:
        yield
    except AgentFlyError:
        raise
    except Exception as error:
        if _disk_is_full(error, path.parent):
            raise UsageError(f"{path} cannot be written: the disk is full; make room and go on from before") from error
        if isinstance(error, OSError):
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place, flushed to disk, if the block succeeds.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    temporary = _temporary(path)
    try:
        with writing(path):
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill an empty folder, flush it to disk and put it at ``path``, instead of what was there.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    temporary, old = _temporary(path), _temporary(path)
    try:
        with writing(path):
            temporary.mkdir()
            write(temporary)
            for folder, _, files in os.walk(temporary):
                for file in files:
                    _sync(Path(folder, file))
                _sync(Path(folder))
            if path.exists():
                path.rename(old)
            temporary.rename(path)
            _sync(path.parent)
    finally:
        for left in (temporary, old):
            if left.exists():
                shutil.rmtree(left)


def sweep_partial(folder: Path) -> None:
    """Delete what a killed writer left in ``folder``. Only the one process that writes there may call it."""
    for left in folder.glob(f"{TEMPORARY}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{secrets.token_hex(6)}{path.suffix}")


def _disk_is_full(error: Exception, folder: Path) -> bool:
    """Libraries that write tensors report a full disk in their own ways, if they name the cause at all."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "No space left" in str(error) or (folder.is_dir() and shutil.disk_usage(folder).free < FULL_BYTES)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
