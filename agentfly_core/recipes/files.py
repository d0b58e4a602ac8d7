"""Rows of data files. Every row remembers where it stands, for messages."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.types import MissingDependency, Task, UsageError

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``number`` counts from 0; ``where`` is the file and line, or the function, it came from."""

    values: dict[str, Any] | Task
    number: int
    where: str


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a .jsonl, .json (a list of objects), .csv (with a header) or .parquet file.

    Raises:
        UsageError: it is missing, unreadable, or a row is malformed (with its line).
    """
    readers: dict[str, Callable[[Path], Iterable[tuple[str, Any]]]] = {
        ".jsonl": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    try:
        reader = readers[path.suffix]
    except KeyError:
        raise UsageError(f"data file {path} is none of {', '.join(SUFFIXES)}") from None
    if not path.is_file():
        raise UsageError(f"data file {path} does not exist")
    try:
        for number, (where, values) in enumerate(reader(path)):
            if not isinstance(values, dict):
                raise UsageError(f"{where}: a row is an object, got {values!r:.60}")
            yield Row(values, number, where)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"data file {path} cannot be read: {error}") from error


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield f"{path}:{line}", _parse(text.strip(), path, line)


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    rows = _parse(path.read_text(encoding="utf-8-sig"), path)
    if not isinstance(rows, list):
        raise UsageError(f"{path}: expected a list of objects, got a {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield f"{path}, row {number}", row


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():  # DictReader's marks of too many and too few values
                raise UsageError(f"{where}: not as many values as there are columns ({len(reader.fieldnames or ())})")
            yield where, row


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependency("pyarrow", f"reading {path}", "agentfly-core[local]") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                yield f"{path}, row {number}", row
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} is no Parquet file: {error}") from error


def _parse(text: str, path: Path, line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{line + error.lineno - 1}"
        raise UsageError(f"{place}: not JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets
        raise UsageError(f"{path}:{line}: {error}") from error
