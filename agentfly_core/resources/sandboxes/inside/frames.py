"""Frames between a sandbox's supervisor and its host: length, channel, kind, then the payload."""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IIB")
"""Bytes of payload, number of the channel, kind."""
LIMIT = 1 << 20
"""Bytes of payload of the largest frame."""
WINDOW = 256 * 1024
"""Bytes in each direction of a channel that may be under way before their reader has taken them."""
CHUNK = 32 * 1024
CREDIT = WINDOW // 4
"""Bytes taken after which their sender is told: seldom enough to cost nothing, often enough that it never waits for
nothing."""

# From the host.
START, INPUT, CLOSE, KILL, TAKEN, CLEAR = range(1, 7)
# From the supervisor.
READY, OUTPUT, ERRORS, ACCEPTED, BROKEN, EXIT, END, CLEARED = range(16, 24)


def frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    """One frame as it is sent."""
    return HEADER.pack(len(payload), channel, kind) + payload


class Parser:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The frames that are complete now, as (kind, channel, payload).

        Raises:
            ValueError: the stream is none of ours.
        """
        self._buffer += data
        found = []
        start = 0
        while len(self._buffer) - start >= HEADER.size:
            length, channel, kind = HEADER.unpack_from(self._buffer, start)
            if length > LIMIT:
                raise ValueError(f"a frame of {length} bytes")
            end = start + HEADER.size + length
            if len(self._buffer) < end:
                break
            found.append((kind, channel, bytes(self._buffer[start + HEADER.size : end])))
            start = end
        del self._buffer[:start]
        return found
