"""What a program wrote, bounded: the beginning and the end of it."""

from __future__ import annotations


class Output:
    """Keeps the first and the last ``limit / 2`` bytes of any number of them."""

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take more of it."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_limit + 65536:  # now and then: a cut costs a copy
            self._trim()

    def text(self) -> str:
        """All of it, or its beginning and end around a note of how much is gone."""
        self._trim()
        omitted = self._total - len(self._head) - len(self._tail)
        if not omitted:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
        return f"{head}\n[... {omitted} bytes left out ...]\n{tail}"

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]
