"""Decompression that never makes more than it is allowed to."""

from __future__ import annotations

import zlib

from agentfly_tools_web.fetching.errors import FetchError, TooLarge

ACCEPT_ENCODING = "gzip, deflate"
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""zlib's own or gzip's."""


class Decoder:
    """Takes a body chunk by chunk.

    Args:
        encoding: the Content-Encoding header.
        limit: bytes that the decompressed body may have.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        self._coded = _is_compressed(encoding)
        self._limit = limit
        self._inflate = zlib.decompressobj(_ANY_HEADER)
        self._begun = False
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece.

        Raises:
            FetchError: the body is too large or broken.
        """
        if not self._coded:
            self._keep(chunk)
            return
        try:
            self._inflate_all(chunk)
        except zlib.error as error:
            raise FetchError(f"the body is not compressed as its headers say ({error})", transient=True) from error

    def finish(self) -> bytes:
        """The whole body.

        Raises:
            FetchError: it breaks off.
        """
        if self._coded and self._begun and not self._inflate.eof:
            raise FetchError("the compressed body breaks off", transient=True)
        return b"".join(self._parts)

    def _inflate_all(self, data: bytes) -> None:
        while data:
            if self._inflate.eof:  # gzip members may follow each other
                self._inflate = zlib.decompressobj(_ANY_HEADER)
            made = self._step(data)
            self._begun = True
            self._keep(made)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data

    def _step(self, data: bytes) -> bytes:
        room = self._limit - self._size + 1
        try:
            return self._inflate.decompress(data, room)
        except zlib.error:
            if self._begun:
                raise
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers' "deflate" has no header
            return self._inflate.decompress(data, room)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise TooLarge(self._limit)
        self._parts.append(piece)


def _is_compressed(encoding: str) -> bool:
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if not names:
        return False
    if len(names) > 1 or names[0] not in ("gzip", "x-gzip", "deflate"):
        raise FetchError(f"its encoding {encoding!r:.60} was not asked for and is not understood")
    return True
