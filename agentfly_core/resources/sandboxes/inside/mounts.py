"""Folders of fixed size, for a supervisor that may mount: they vanish with its mount namespace."""

from __future__ import annotations

import ctypes
import os
from typing import Any

NEW_NAMESPACE = 0x00020000
RECURSIVE, PRIVATE, NO_SUID, NO_DEVICES = 16384, 1 << 18, 2, 4


def mount_folders(folders: dict[str, int], uid: int) -> None:
    """Put an empty file system of so many MiB over each folder, for this process and its descendants only.

    Raises:
        OSError: this process may not mount.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(NEW_NAMESPACE), "unshare")
    _mount(libc, None, "/", None, RECURSIVE | PRIVATE, None)
    for path, mib in folders.items():
        _mount(libc, "tmpfs", path, "tmpfs", NO_SUID | NO_DEVICES, f"size={mib << 20},mode=0700,uid={uid},gid={uid}")


def _mount(libc: Any, source: str | None, path: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, path, kind, data)]
    _check(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {path}")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
