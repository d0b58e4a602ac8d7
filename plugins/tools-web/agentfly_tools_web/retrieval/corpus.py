"""Reading a corpus: JSON lines, or plain text cut at blank lines."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentfly_core.runs.files import TEMPORARY
from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval.index import MANIFEST
from agentfly_tools_web.retrieval.store import DOCUMENTS, Passage

TEXT_SUFFIXES = (".txt", ".md")
_OPENERS: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a JSON corpus's columns. Rows without an id are named by their number, from 0.

    ``text`` may also be called ``contents``; if then there is no title, the first line in quotes is one, which is how
    the Wikipedia passages of retrieval research are written.
    """

    id: str = "id"
    title: str = "title"
    text: str = "text"
    url: str = "url"


def read_corpus(path: Path, columns: Columns | None = None, *, leave_out: Path | None = None) -> Iterator[Passage]:
    """The passages of a .jsonl file, of a .txt or .md file, or of a folder of such files in the order of their names.

    ``.gz`` and ``.xz`` may follow. A blank line ends a passage of text; its title is the file's name. The files are
    listed at once, before the first passage is asked for. Indexes in the folder, what is being written, and the folder
    ``leave_out`` are no part of it.

    Raises:
        UsageError: there is no such corpus, or a row is not as ``columns`` says; the message names file and line.
    """
    return _passages(path, _files(path, leave_out), columns or Columns())


def _passages(path: Path, files: Iterable[Path], names: Columns) -> Iterator[Passage]:
    number = 0
    for file in files:
        kind = _kind(file)
        rows = _json_rows(file, names) if kind == ".jsonl" else _text_rows(file)
        for row in rows:
            identifier, title, text, url = map(whole_text, row)
            yield Passage(row=number, id=identifier or str(number), title=title, text=text, url=url)
            number += 1
    if not number:
        raise UsageError(f"the corpus {path} has no passage")


def corpus_bytes(path: Path) -> int:
    """Size of the corpus's files on disk."""
    return sum(file.stat().st_size for file in _files(path))


def _files(path: Path, leave_out: Path | None = None) -> list[Path]:
    if path.is_file():
        if _kind(path) not in (".jsonl", *TEXT_SUFFIXES):
            raise UsageError(f"the corpus {path} must be a .jsonl, .txt or .md file; .gz or .xz may follow")
        return [path]
    if not path.is_dir():
        raise UsageError(f"there is no corpus {path}")
    if _is_index(path):
        raise UsageError(f"{path} is an index, no corpus")
    found = []
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        folders[:] = [name for name in folders if not _left_out(here / name, leave_out)]
        files = (here / name for name in names if not name.startswith(TEMPORARY))
        found += [file for file in files if file.is_file() and _kind(file) in (".jsonl", *TEXT_SUFFIXES)]
    if not found:
        raise UsageError(f"the folder {path} has no .jsonl, .txt or .md file in it")
    return sorted(found)


def _left_out(folder: Path, leave_out: Path | None) -> bool:
    return folder.name.startswith(TEMPORARY) or _is_index(folder) or folder.resolve() == leave_out


def _is_index(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and (folder / DOCUMENTS).is_file()


def _kind(file: Path) -> str:
    suffix = file.suffix.lower()
    return Path(file.stem).suffix.lower() if suffix in _OPENERS else suffix


def _open(file: Path) -> IO[str]:
    opener = _OPENERS.get(file.suffix.lower(), open)
    opened: IO[str] = opener(file, "rt", encoding="utf-8-sig")  # with or without a byte order mark
    return opened


def _json_rows(file: Path, columns: Columns) -> Iterator[tuple[str, str, str, str]]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where}: no JSON: {error}") from error
        if not isinstance(row, dict):
            raise UsageError(f'{where}: a line must be an object such as {{"id": "1", "text": "..."}}')
        yield _fields(row, columns, where)


def _fields(row: Mapping[str, Any], columns: Columns, where: str) -> tuple[str, str, str, str]:
    text = row.get(columns.text, row.get("contents") if columns.text == "text" else None)
    if not isinstance(text, str):
        raise UsageError(f"{where}: no text in the column {columns.text!r}; its columns: {', '.join(map(str, row))}")
    title = row.get(columns.title)
    quoted = re.match(r'"([^"\n]+)"\n', text)
    if title is None and quoted:
        title, text = quoted[1], text[quoted.end() :]
    identifier = row.get(columns.id)
    return (
        "" if identifier is None else str(identifier),
        "" if title is None else str(title),
        text,
        str(row.get(columns.url) or ""),
    )


def _text_rows(file: Path) -> Iterator[tuple[str, str, str, str]]:
    title = file.name.split(".")[0]
    lines: list[str] = []
    for _, line in (*_lines(file), (0, "")):
        if line.strip():
            lines.append(line.strip())
        elif lines:
            yield "", title, "\n".join(lines), ""
            lines = []


def _lines(file: Path) -> Iterable[tuple[int, str]]:
    try:
        with _open(file) as opened:
            yield from enumerate(opened, 1)
    except (UnicodeDecodeError, OSError, EOFError, lzma.LZMAError) as error:
        raise UsageError(f"{file} cannot be read as UTF-8 text: {error}") from error


def whole_text(text: str) -> str:
    """Halves of surrogate pairs, which JSON can write and no file can hold, become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
