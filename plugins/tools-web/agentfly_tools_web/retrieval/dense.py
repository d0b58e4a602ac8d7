"""Search by embeddings: an exact inner product with every passage's vector, memory-mapped."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from agentfly_core.types import MissingDependency, UsageError
from agentfly_tools_web.retrieval.store import Passage

VECTORS = "vectors.npy"
_BATCH = 256
_SLICE = 65_536
"""Rows of the matrix that are looked at together: bounds the memory of a search."""


def write_dense(folder: Path, passages: Iterable[Passage], model: str) -> Generator[Passage, None, None]:
    """Write one normalised float32 vector a passage into ``folder`` while passing the passages on.

    Raises:
        MissingDependency: sentence-transformers is not installed.
        UsageError: the model cannot be loaded.
    """
    import numpy as np

    encode = _encoder(model)
    folder.mkdir()
    raw = folder / "vectors.raw"
    count = width = 0
    with raw.open("wb") as file:
        remaining = iter(passages)
        while batch := list(itertools.islice(remaining, _BATCH)):
            vectors = encode([f"{p.title}\n{p.text}" if p.title else p.text for p in batch])
            file.write(vectors.tobytes())
            count, width = count + len(batch), vectors.shape[1]
            yield from batch
    written = np.memmap(raw, dtype=np.float32, mode="r", shape=(count, width))
    np.save(folder / VECTORS, written)
    del written
    raw.unlink()


class Dense:
    """Searches what ``write_dense`` wrote. The model encodes one query at a time, whichever thread asks."""

    def __init__(self, folder: Path, model: str) -> None:
        import numpy as np

        self._np: Any = np
        self._vectors = np.load(folder / VECTORS, mmap_mode="r")
        self._model = model
        self._encode: Any = None
        self._lock = threading.Lock()

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """The ``k`` rows with the greatest cosine, best first; equal ones in the order of the corpus."""
        np = self._np
        with self._lock:
            self._encode = self._encode or _encoder(self._model)
            vector = self._encode([query])[0]
        scores = np.concatenate(
            [self._vectors[at : at + _SLICE] @ vector for at in range(0, len(self._vectors), _SLICE)]
        ).round(5)
        k = min(k, len(scores))
        if k < 1:
            return []
        floor = np.partition(scores, -k)[-k]
        rows = np.flatnonzero(scores >= floor)
        best = rows[np.lexsort((rows, -scores[rows]))][:k]
        return [(int(row), float(scores[row])) for row in best]


def _encoder(model: str) -> Any:
    """Texts -> (n, width) float32, normalised."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingDependency(
            "sentence-transformers", "dense retrieval", "agentfly-plugin-tools-web[dense]"
        ) from error
    try:
        loaded = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise UsageError(f"the embedding model {model!r} cannot be loaded: {error}") from error

    def encode(texts: list[str]) -> Any:
        vectors = loaded.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        return vectors.astype("float32")

    return encode
