"""The run folder: unique, atomic, readable while written."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agentfly_core.runs import Checkpoints, MetricsLog, RunFolder
from agentfly_core.runs.files import replace_text, sweep_partial
from agentfly_core.runs.status import read_status, write_status
from agentfly_core.types import UsageError

RECIPE = {"name": "demo", "seed": 7, "model": {"path": "m", "template": "t"}}


def test_create_writes_recipe_facts_and_status(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "demo", RECIPE)
    assert folder.path.parent == tmp_path / "runs"
    assert folder.path.name.startswith("demo-")
    assert yaml.safe_load(folder.recipe_path.read_text()) == RECIPE
    facts = json.loads((folder.path / "environment.json").read_text())
    assert facts["seed"] == 7
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    status = RunFolder.open(folder.path).status()
    assert (status.state, status.step, status.pid, folder.stale()) == ("running", 0, os.getpid(), False)


def test_runs_made_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: RunFolder.create(tmp_path, "same", RECIPE).path, range(24)))
    assert len(set(paths)) == 24


def test_an_odd_name_stays_inside_the_root(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "../../a b/é", RECIPE)
    assert folder.path.parent == tmp_path


def test_update_status_keeps_what_it_is_not_told(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    started = folder.status().started
    folder.update_status(step=4)
    assert (folder.status().state, folder.status().step, folder.status().started) == ("running", 4, started)
    folder.update_status("failed", error="boom")
    assert (folder.status().state, folder.status().step, folder.status().error) == ("failed", 4, "boom")


def test_a_failure_is_recorded_unless_the_end_is_known(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    with pytest.raises(ValueError, match="two"), folder.recording_failure():
        raise ValueError("two\nlines")
    assert (folder.status().state, folder.status().error) == ("failed", "ValueError: two lines")
    folder.update_status("stopped")
    with pytest.raises(KeyboardInterrupt), folder.recording_failure():
        raise KeyboardInterrupt
    assert folder.status().state == "stopped"


def test_a_run_whose_process_is_gone_is_stale(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    folder.release()
    assert folder.stale()  # though the PID in its status is that of a living process
    (folder.path / ".lock").unlink()  # an older run, or a place without locks
    assert not folder.stale()
    write_status(folder.path / "status.json", replace(folder.status(), pid=child.pid))
    assert folder.stale()
    elsewhere = replace(folder.status(), host="another", updated=time.time())
    assert not elsewhere.stale()
    assert replace(elsewhere, updated=time.time() - 3600).stale()
    assert not replace(folder.status(), state="finished").stale()


def test_open_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(UsageError, match=r"is no run folder: it has no status\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "status.json").write_text('{"colour": "red"}')
    with pytest.raises(UsageError, match="damaged"):
        RunFolder.open(tmp_path)


def test_status_is_never_seen_half_written(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            folder.update_status(step=step)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [read_status(folder.path / "status.json").step for _ in range(300)]
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)


def test_a_failed_replacement_keeps_the_old_text(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    replace_text(file, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_text(file, "new \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_metrics_append_and_read(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.read() == []
    log.append(1, {"loss": 0.5, "count": 3})
    log.append(2, {"loss": math.nan, "top": math.inf})
    first, second = log.read()
    assert first == {"step": 1, "loss": 0.5, "count": 3}
    assert second["step"] == 2
    assert math.isnan(second["loss"])
    assert math.isnan(second["top"])
    assert json.loads(log.path.read_text().splitlines()[1]) == {"step": 2, "loss": None, "top": None}


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', '{"step": 3}', '{"step": 3, "word": "\xc3'])
def test_a_torn_last_line_is_ignored_and_then_cut_off(tmp_path: Path, torn: str) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(1, {})
    log.append(2, {})
    with log.path.open("ab") as file:
        file.write(torn.encode("latin-1"))
    assert [row["step"] for row in log.read()] == [1, 2]
    log.append(4, {})
    assert [row["step"] for row in log.read()] == [1, 2, 4]


def test_a_file_that_is_one_torn_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.path.write_text('{"st')
    assert log.read() == []
    log.append(1, {})
    assert log.read() == [{"step": 1}]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(UsageError, match=r"metrics\.jsonl:2: not JSON"):
        log.read()


def test_weights_are_the_final_ones_or_the_latest_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    with pytest.raises(UsageError, match="has no weights"):
        folder.weights()
    folder.checkpoints.save(3, lambda path: (path / "w").touch())
    assert folder.weights() == folder.path / "checkpoints" / "step-000003"
    folder.write_model(lambda path: (path / "final").touch())
    assert folder.weights() == folder.path / "model"
    assert (folder.path / "model" / "final").exists()


def test_rewind_drops_later_steps_everywhere(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    for step in (0, 1, 2, 2, 3):
        folder.metrics.append(step, {"x": step})
    folder.rewind(2)
    assert [row["step"] for row in folder.metrics.read()] == [0, 1, 2, 2]


def test_rewind_sweeps_what_a_killed_process_left(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "demo", RECIPE)
    before = sorted(tmp_path.rglob("*"))
    (folder.path / ".partial-0.json").write_text("{")
    (folder.path / ".partial-1" / "model").mkdir(parents=True)
    (folder.trajectories.path / ".partial-2.parquet").write_text("")
    folder.rewind(0)
    assert sorted(tmp_path.rglob("*")) == before


def test_checkpoints_are_whole_ordered_and_pruned(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.latest() is None
    for step in (2, 10, 1_000_000):
        checkpoints.save(step, lambda path: (path / "deep").mkdir() or None)  # type: ignore[func-returns-value]
    assert [step for step, _ in checkpoints.all()] == [2, 10, 1_000_000]
    checkpoints.prune(2)
    assert [step for step, _ in checkpoints.all()] == [10, 1_000_000]
    assert checkpoints.latest() == (1_000_000, tmp_path / "checkpoints" / "step-1000000")
    assert (checkpoints.all()[0][1] / "deep").is_dir()


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, lambda path: (path / "old").touch())
    checkpoints.save(1, lambda path: (path / "new").touch())
    assert [f.name for f in (tmp_path / "step-000001").iterdir()] == ["new"]
    assert [f.name for f in tmp_path.iterdir()] == ["step-000001"]


def test_a_failing_write_leaves_the_old_checkpoint_and_no_other(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, lambda path: (path / "good").touch())

    def fail(path: Path) -> None:
        (path / "half").touch()
        raise OSError("disk full")

    for step in (1, 2):
        with pytest.raises(UsageError, match=r"step-00000\d cannot be written: disk full"):
            checkpoints.save(step, fail)
    assert [f.name for f in tmp_path.iterdir()] == ["step-000001"]
    assert [f.name for f in (tmp_path / "step-000001").iterdir()] == ["good"]


def test_a_killed_write_leaves_no_half_checkpoint(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from agentfly_core.runs import Checkpoints\n"
        "c = Checkpoints(Path(sys.argv[1]))\n"
        "c.save(1, lambda p: (p / 'a').touch())\n"
        "c.save(2, lambda p: ((p / 'half').touch(), os._exit(9)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == 9
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() == (1, tmp_path / "step-000001")
    assert len(list(tmp_path.iterdir())) == 2  # the half one, under a name that does not count
    checkpoints.save(3, lambda path: None)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["step-000001", "step-000003"]


def test_sweep_takes_only_what_is_partial(tmp_path: Path) -> None:
    (tmp_path / "keep").touch()
    (tmp_path / ".partial-1").mkdir()
    (tmp_path / ".partial-2.json").touch()
    sweep_partial(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["keep"]


def test_another_error_of_a_writer_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        Checkpoints(tmp_path / "checkpoints").save(1, write)
