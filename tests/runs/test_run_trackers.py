"""Metric sinks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentfly_core.runs.trackers import TensorBoardSink
from agentfly_core.types import MetricSink, MissingDependency


def test_tensorboard_scalars_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path)
    assert isinstance(sink, MetricSink)
    sink.log(1, {"reward/mean": 0.25})
    sink.log(3, {"reward/mean": 0.5, "success": 1.0})
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25), (3, 0.5)]
    assert [(e.step, e.value) for e in events.Scalars("success")] == [(3, 1.0)]


def test_without_tensorboard_one_error_names_the_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentfly-core\[tensorboard\]'"):
        TensorBoardSink(tmp_path)
    assert list(tmp_path.iterdir()) == []
