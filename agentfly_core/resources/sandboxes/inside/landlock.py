"""Landlock: file access by path, TCP, signals, without any privilege (Linux 5.13 and newer)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same numbers on every architecture."""
SET_NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
FIRST_RIGHTS = (1 << 13) - 1
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
BIND_AND_CONNECT_TCP = 3
ABSTRACT_SOCKETS_AND_SIGNALS = 3


def version() -> int:
    """Of the kernel's Landlock; 0 without it."""
    if platform.system() != "Linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1)))


def apply(read: Sequence[str], write: Sequence[str], *, network: bool = False) -> None:
    """Leave this process and its descendants only these paths; those that do not exist are passed over.

    From version 4 of the interface on TCP is shut too unless ``network``, and from version 6 signals and abstract
    sockets stay inside.

    Raises:
        OSError: the kernel refuses, or has no Landlock.
    """
    abi = version()
    if not abi:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    rights = FIRST_RIGHTS | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0) | (IOCTL_DEV if abi >= 5 else 0)
    tcp = BIND_AND_CONNECT_TCP if abi >= 4 and not network else 0
    scoped = ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    attributes = struct.pack("=QQQ", rights, tcp, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = _check(libc, "create_ruleset", libc.syscall(CREATE_RULESET, attributes, len(attributes), 0))
    for paths, allowed in ((read, EXECUTE | READ_FILE | READ_DIR), (write, rights)):
        for path in paths:
            _allow(libc, ruleset, path, allowed & rights)
    if libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _check(libc, "restrict_self", libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights &= -1 if os.path.isdir(path) else ON_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _check(libc, f"add_rule {path}", libc.syscall(ADD_RULE, ruleset, 1, rule, 0))
    finally:
        os.close(descriptor)


def _check(libc: ctypes.CDLL, what: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock {what}: {os.strerror(code)}")
    return result
