"""Trajectories on disk: Parquet, one file for each step and split, or one of each process that writes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from agentfly_core.runs.encoding import from_row, to_row
from agentfly_core.runs.files import replacing, writing
from agentfly_core.types import MissingDependency, Split, Trajectory, UsageError

_NAME = re.compile(r"step-(\d{6,})-(train|eval)(?:\.[A-Za-z0-9_-]+)?\.parquet")


class TrajectoryWriter:
    """Collects a step's trajectories and writes them at once. Safe to append to from several threads.

    Args:
        path: the folder.
        part: names the files of this writer where several processes write: letters, digits, ``-`` and ``_``.
    """

    def __init__(self, path: Path, part: str = "") -> None:
        self.path = path
        self._suffix = f".{part}.parquet" if part else ".parquet"
        self._rows: dict[tuple[int, Split], list[dict[str, Any]]] = defaultdict(list)
        self._lock = Lock()

    @staticmethod
    def check() -> None:
        """Find out now, rather than after the first step, whether trajectories can be written.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        _pyarrow()

    def append(self, step: int, trajectory: Trajectory) -> None:
        """Keep a trajectory until the step is flushed."""
        with self._lock:
            self._rows[step, trajectory.split].append(to_row(step, trajectory))

    def flush(self, step: int) -> None:
        """Write what was appended for ``step``; a file that is there already (an earlier flush) is added to."""
        with self._lock:
            due = {key: self._rows.pop(key) for key in list(self._rows) if key[0] == step}
        for (_, split), rows in due.items():
            self._write(self.path / f"step-{step:06d}-{split}{self._suffix}", rows)

    def rewind(self, step: int) -> None:
        """Delete the files of every step after ``step``."""
        for found, _, file in trajectory_files(self.path):
            if found > step:
                file.unlink()

    def _write(self, file: Path, rows: list[dict[str, Any]]) -> None:
        arrow, parquet = _pyarrow()
        with writing(file):
            self.path.mkdir(parents=True, exist_ok=True)
        table = arrow.Table.from_pylist(rows, schema=_schema(arrow))
        if file.exists():
            table = arrow.concat_tables([parquet.read_table(file), table])
        with replacing(file) as temporary:
            parquet.write_table(table, temporary, compression="zstd")


def trajectory_files(folder: Path) -> list[tuple[int, Split, Path]]:
    """(step, split, file) of every trajectory file in a folder, by step."""
    if not folder.is_dir():
        return []
    found = ((_NAME.fullmatch(file.name), file) for file in folder.iterdir())
    return sorted((int(m[1]), "eval" if m[2] == "eval" else "train", file) for m, file in found if m)


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """The trajectories of a file, of a ``trajectories`` folder or of a run folder, in the order written.

    Raises:
        UsageError: there are none, or a file is damaged.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError(f"{path} does not exist: expected a trajectory file or a run folder")
    files = [path] if path.is_file() else [f for _, _, f in trajectory_files(path) or trajectory_files(_inside(path))]
    if not files:
        raise UsageError(f"{path} holds no trajectory files (step-000001-train.parquet, ...)")
    return _read(files)


def _read(files: list[Path]) -> Iterator[Trajectory]:
    arrow, parquet = _pyarrow()
    for file in files:
        try:
            with parquet.ParquetFile(file) as table:
                for batch in table.iter_batches(batch_size=256):
                    yield from map(from_row, batch.to_pylist())
        except (arrow.ArrowException, KeyError) as error:
            raise UsageError(f"{file} is no trajectory file: {error}") from error


def _inside(path: Path) -> Path:
    return path / "trajectories"


def _schema(arrow: ModuleType) -> Any:
    text, number, many = arrow.string(), arrow.float64(), arrow.list_
    return arrow.schema(
        {
            "step": arrow.int64(),
            "split": text,
            "group": text,
            "task_id": text,
            "chain_index": arrow.int32(),
            "status": text,
            "reward": number,
            "scored": arrow.bool_(),
            "unscored_reason": text,
            "final_response": text,
            "error": text,
            "seconds": number,
            "turn_rewards": many(number),
            "prompt_len": many(arrow.int32()),
            "token_ids": many(many(arrow.int32())),
            "action_mask": many(many(arrow.int8())),
            "logprobs": many(many(number)),
            **{
                f"{name}_json": text
                for name in ("spans", "images", "task", "messages", "turns", "components", "metrics", "exact")
            },
        }
    )


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependency("pyarrow", "writing and reading trajectories", "agentfly-core[local]") from None
    return pyarrow, pyarrow.parquet
