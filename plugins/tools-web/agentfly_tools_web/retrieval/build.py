"""Building an index folder: whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from agentfly_core.runs.files import replace_folder
from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval.bm25 import write_bm25
from agentfly_tools_web.retrieval.corpus import Columns, read_corpus
from agentfly_tools_web.retrieval.index import FORMAT, MANIFEST, Index, Kind, open_index
from agentfly_tools_web.retrieval.store import Passage, StoreWriter

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def build_index(
    corpus: str | Path,
    output: str | Path,
    *,
    kind: Kind = "bm25",
    columns: Columns | None = None,
    title_weight: float = 0.0,
    model: str = DEFAULT_MODEL,
    progress: Callable[[int], None] | None = None,
) -> Index:
    """Make the index of a corpus and put it at ``output``, instead of an index that was there.

    The same corpus and options give an index that answers alike. A build that is killed leaves no index.

    Args:
        corpus: see ``read_corpus``.
        title_weight: of ``bm25``, how much a match in the title counts on top of that in the passage.
        model: of ``dense``, a sentence-transformers model: a folder or a hub id.
        progress: called with the number of passages done, now and then.

    Raises:
        UsageError: the corpus is wrong, or ``output`` is a folder with something else in it.
    """
    if not (math.isfinite(title_weight) and title_weight >= 0):
        raise UsageError(f"title_weight must be a finite number from 0, not {title_weight}")
    target = Path(output).expanduser().resolve()
    if target.exists() and not (target / MANIFEST).is_file() and (target.is_file() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is no index: choose another --output")
    source = Path(corpus).expanduser()
    if source.resolve().is_relative_to(target):
        raise UsageError(f"the corpus {source} lies in {target}, which would be replaced: choose another --output")
    passages = _reporting(read_corpus(source, columns, leave_out=target), progress)
    if Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().resolve())  # found again from anywhere
    options: dict[str, Any] = {"title_weight": title_weight} if kind == "bm25" else {"model": model}
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(target, lambda folder: _write(folder, passages, kind, options))
    return open_index(target)


def _write(folder: Path, passages: Iterator[Passage], kind: Kind, options: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    count = 0
    indexed = write_bm25(folder / "bm25", passages) if kind == "bm25" else _write_dense(folder, passages, options)
    with contextlib.closing(indexed), StoreWriter(folder) as store:
        for passage in indexed:
            store.add(passage)
            digest.update(repr((passage.id, passage.title, passage.text, passage.url)).encode())
            count += 1
    manifest = {"format": FORMAT, "kind": kind, "passages": count, "digest": digest.hexdigest(), **options}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _write_dense(folder: Path, passages: Iterator[Passage], options: dict[str, Any]) -> Generator[Passage, None, None]:
    from agentfly_tools_web.retrieval.dense import write_dense

    return write_dense(folder / "dense", passages, options["model"])


def _reporting(passages: Iterator[Passage], progress: Callable[[int], None] | None) -> Iterator[Passage]:
    for passage in passages:
        yield passage
        if progress is not None and (passage.row + 1) % 1000 == 0:
            progress(passage.row + 1)
