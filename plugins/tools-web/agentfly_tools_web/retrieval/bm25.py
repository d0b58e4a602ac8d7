"""BM25 (k1 = 1.2, b = 0.75) over an inverted index on disk, by tantivy.

Words are lower-cased, stripped of accents and English stop words, and stemmed. A query is the sum of its words: no
syntax, so nothing that a model writes means anything but the words it is made of.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval.store import Passage

ANALYZER = "agentfly_en"
MAX_TERMS = 128
"""Words of a query beyond these are not looked at."""

_WRITER_BYTES = 512_000_000
_SPARE = 32
"""How many hits more than wanted are looked at, to put equal scores into the order of the corpus."""


def write_bm25(folder: Path, passages: Iterable[Passage]) -> Generator[Passage, None, None]:
    """Index passages into ``folder`` while passing them on; complete when the iterator ends."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("title", tokenizer_name=ANALYZER)
    builder.add_text_field("body", tokenizer_name=ANALYZER)
    builder.add_unsigned_field("row", stored=True, indexed=False)
    folder.mkdir()
    index = tantivy.Index(builder.build(), path=str(folder))
    index.register_tokenizer(ANALYZER, _analyzer())
    writer = index.writer(_WRITER_BYTES, num_threads=1)
    try:
        for passage in passages:
            body = f"{passage.title}\n{passage.text}"
            writer.add_document(tantivy.Document(title=[passage.title], body=[body], row=passage.row))
            yield passage
        writer.commit()
    except BaseException:
        writer.rollback()
        raise
    finally:
        writer.wait_merging_threads()  # nothing writes into the folder any more


class BM25:
    """Searches what ``write_bm25`` wrote; safe to use from many threads and processes.

    Args:
        title_weight: how much a match in the title counts on top of that in the passage.
    """

    def __init__(self, folder: Path, *, title_weight: float) -> None:
        import tantivy

        self._tantivy: Any = tantivy
        self._title_weight = title_weight
        self._analyzer = _analyzer()
        try:
            index = tantivy.Index.open(str(folder))
        except ValueError as error:
            raise UsageError(f"the index {folder.parent} cannot be opened ({error}): build it again") from error
        self._schema = index.schema
        self._searcher = index.searcher()

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """The ``k`` best rows with their scores, best first; equal scores in the order of the corpus."""
        terms = list(dict.fromkeys(self._analyzer.analyze(query.encode("utf-8", "replace").decode())))[:MAX_TERMS]
        if not terms or k < 1:
            return []
        built = self._query(terms)
        limit = k + _SPARE
        while True:
            hits = self._searcher.search(built, limit, count=False).hits
            if len(hits) < limit or round(hits[-1][0], 4) < round(hits[k - 1][0], 4):
                break
            limit *= 4  # more equals than looked at: the first of them in the corpus may lie further on
        rows = [(self._searcher.doc(address)["row"][0], round(score, 4)) for score, address in hits]
        return sorted(rows, key=lambda hit: (-hit[1], hit[0]))[:k]

    def _query(self, terms: Sequence[str]) -> Any:
        make, should = self._tantivy.Query, self._tantivy.Occur.Should
        clauses = []
        for term in terms:
            clauses.append((should, make.term_query(self._schema, "body", term)))
            if self._title_weight:
                title = make.term_query(self._schema, "title", term)
                clauses.append((should, make.boost_query(title, self._title_weight)))
        return make.boolean_query(clauses)


def _analyzer() -> Any:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (
        Filter.remove_long(64),
        Filter.lowercase(),
        Filter.ascii_fold(),
        Filter.stopword("english"),
        Filter.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()
