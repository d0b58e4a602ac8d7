"""Metric sinks besides ``metrics.jsonl``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from agentfly_core.types.errors import MissingDependency


class TensorBoardSink:
    """Writes scalars as TensorBoard event files into ``RUN/tensorboard``; look at them with ``tensorboard --logdir``.

    Args:
        folder: the run folder.
        subfolder: where in it.
        flush_secs: seconds after which buffered events go to disk.
    """

    def __init__(self, folder: str | Path, *, subfolder: str = "tensorboard", flush_secs: int = 10) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise MissingDependency("tensorboard", "the tracker 'tensorboard'", "agentfly-core[tensorboard]") from None
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(Path(folder) / subfolder), flush_secs=flush_secs)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar a metric."""
        values = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        self._writer.add_event(self._event(step=step, wall_time=time.time(), summary=self._summary(value=values)))

    def close(self) -> None:
        """Flush and close the file; nothing may be logged after it."""
        self._writer.close()
