"""An index folder: what is in it, opening it, searching it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval.bm25 import BM25
from agentfly_tools_web.retrieval.store import Passage, Store

MANIFEST = "index.json"
FORMAT = 1

Kind = Literal["bm25", "dense"]


class Searcher(Protocol):
    """One way of searching."""

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """The ``k`` best rows with their scores, best first."""
        ...


class Index:
    """A corpus that can be searched. Everything large is memory-mapped; safe to use from many threads.

    Attributes:
        folder: where it lies.
        manifest: what ``agentfly index build`` wrote down about it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_manifest(folder)
        self._store = Store(folder)
        if len(self._store) != self.manifest["passages"]:
            raise UsageError(f"the index {folder} is damaged: build it again")
        self._searcher = self._open()

    def __len__(self) -> int:
        return len(self._store)

    def search(self, query: str, k: int = 5) -> list[Passage]:
        """The ``k`` passages that fit best, best first; fewer if no more fit at all."""
        return [self._store.passage(row, score) for row, score in self._searcher.search(query, k)]

    def passage(self, row: int) -> Passage:
        """The passage at a row.

        Raises:
            IndexError: there is none.
        """
        return self._store.passage(row)

    def _open(self) -> Searcher:
        if self.manifest["kind"] == "bm25":
            return BM25(self.folder / "bm25", title_weight=self.manifest["title_weight"])
        from agentfly_tools_web.retrieval.dense import Dense

        return Dense(self.folder / "dense", self.manifest["model"])


def open_index(path: str | Path) -> Index:
    """The index in a folder; a process opens each only once.

    Raises:
        UsageError: there is no index, it is of another format, or damaged.
    """
    folder = Path(path).expanduser().resolve()
    try:
        version = (folder / MANIFEST).stat().st_mtime_ns
    except OSError as error:
        raise UsageError(
            f"there is no index in {folder}; build one with: agentfly index build CORPUS --output {folder}"
        ) from error
    return _opened(folder, version)


@functools.lru_cache(maxsize=16)
def _opened(folder: Path, version: int) -> Index:
    return Index(folder)


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder} is no index: {type(error).__name__}: {error}") from error
    if found != FORMAT:
        raise UsageError(f"the index {folder} has format {found}, this version reads {FORMAT}: build it again")
    weight = manifest.get("title_weight")
    whole = {
        "bm25": isinstance(weight, int | float),
        "dense": isinstance(manifest.get("model"), str),
    }.get(str(manifest.get("kind")), False)
    if not whole or not isinstance(manifest.get("passages"), int):
        raise UsageError(f"the index {folder} is damaged: build it again")
    checked: Mapping[str, Any] = manifest
    return checked
