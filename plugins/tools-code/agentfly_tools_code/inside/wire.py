"""Frames between two processes: four bytes of length, then the payload."""

from __future__ import annotations

import os
import struct

_LENGTH = struct.Struct(">I")
_read = os.read
_write = os.write


def send(fd: int, payload: bytes) -> None:
    """Write one frame; waits while nobody reads."""
    left = memoryview(_LENGTH.pack(len(payload)) + payload)
    while left:
        left = left[_write(fd, left) :]


def receive(fd: int) -> bytes:
    """Read one frame.

    Raises:
        EOFError: the other side is gone.
    """
    (size,) = _LENGTH.unpack(_exactly(fd, _LENGTH.size))
    return _exactly(fd, size)


def _exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = _read(fd, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
