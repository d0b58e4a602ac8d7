"""The passages themselves: JSON lines and the offset of each, both memory-mapped."""

from __future__ import annotations

import json
import mmap
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from agentfly_core.types import UsageError

DOCUMENTS = "documents.jsonl"
OFFSETS = "offsets.u64"


@dataclass(frozen=True, slots=True)
class Passage:
    """What a search finds.

    Attributes:
        row: its place in the corpus, from 0.
        id: its name in the corpus.
        score: of the search that found it; higher is better.
    """

    row: int
    id: str
    title: str
    text: str
    url: str = ""
    score: float = 0.0


class StoreWriter:
    """Writes passages one after the other into a folder."""

    def __init__(self, folder: Path) -> None:
        self._offsets = array("Q", [0])
        self._folder = folder
        self._file = (folder / DOCUMENTS).open("wb")

    def __enter__(self) -> StoreWriter:
        return self

    def add(self, passage: Passage) -> None:
        """Append a passage."""
        row = {"id": passage.id, "title": passage.title, "text": passage.text}
        if passage.url:
            row["url"] = passage.url
        text = json.dumps(row, ensure_ascii=False).encode() + b"\n"
        self._offsets.append(self._offsets[-1] + len(text))
        self._file.write(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if sys.byteorder == "big":
            self._offsets.byteswap()
        (self._folder / OFFSETS).write_bytes(self._offsets.tobytes())


class Store:
    """Reads what ``StoreWriter`` wrote; safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._damaged = damaged = UsageError(f"the index {folder} is damaged: build it again")
        try:
            self._offsets = _map(folder / OFFSETS)
            self._documents = _map(folder / DOCUMENTS)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise damaged from error
        if len(self._offsets) % 8 or self._offset(len(self)) != len(self._documents):
            raise damaged

    def __len__(self) -> int:
        return len(self._offsets) // 8 - 1

    def passage(self, row: int, score: float = 0.0) -> Passage:
        """The passage at a row.

        Raises:
            IndexError: there is none.
            UsageError: the index is damaged there.
        """
        if not 0 <= row < len(self):
            raise IndexError(row)
        line = self._documents[self._offset(row) : self._offset(row + 1)]
        try:
            return Passage(row=row, score=score, **json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged from error

    def _offset(self, row: int) -> int:
        return int.from_bytes(self._offsets[8 * row : 8 * row + 8], "little")


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
