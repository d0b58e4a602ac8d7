"""Replacing files and folders so that a reader, or a killed writer, never meets half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

TEMPORARY = ".partial-"
"""Prefix of everything that is not finished; safe to delete once its writer is gone."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place, flushed to disk, if the block succeeds."""
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill an empty folder, flush it to disk and put it at ``path``, instead of what was there."""
    temporary, old = _temporary(path), _temporary(path)
    temporary.mkdir()
    try:
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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
