"""What a full or a read-only disk does to a run: one clear error, and nothing that was there is lost."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from agentfly_core.runs import Checkpoints, MetricsLog, RunFolder, TrajectoryWriter, read_trajectories
from agentfly_core.runs.files import replace_text
from agentfly_core.types import ChainStatus, Task, Trajectory, UsageError

Run = Callable[..., Result]
FULL = "cannot be written: the disk is full; make room and go on from before"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)  # pyarrow may still hold a file that it could not write


def fill(disk: Path) -> Path:
    """Take all the room that is left; returns the file that has it."""
    stone = disk / "stone"
    with stone.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free == 0
    return stone


def chain() -> Trajectory:
    return Trajectory(Task("one"), 0, "g/one", "train", ChainStatus.COMPLETED)


@pytest.mark.parametrize("state", ["ro", "full"])
def test_resuming_on_a_disk_that_takes_nothing_is_one_error(
    agentfly: Run, workspace: Path, small_disk: Path, state: str
) -> None:
    agentfly("train", "recipe.yaml", f"run.root={small_disk}")
    [status] = small_disk.glob("*/status.json")
    folder, before = RunFolder.open(status.parent), status.read_bytes()
    if state == "full":
        fill(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    result = agentfly("train", "--resume", str(folder.path), "train.steps=9")
    folder.release()
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    assert line.startswith(f"error: {folder.path}")
    assert "cannot be written: " in line
    assert ("the disk is full" if state == "full" else "Read-only file system") in line
    assert status.read_bytes() == before


@pytest.mark.parametrize("writer", ["python", "a library that hides the cause"])
def test_a_full_disk_is_one_clear_error_and_leaves_the_checkpoint_before(small_disk: Path, writer: str) -> None:
    def write(folder: Path) -> None:
        try:
            (folder / "weights").write_bytes(bytes(1 << 20))
        except OSError as error:
            if writer == "python":
                raise
            raise RuntimeError("writer failed in file") from error

    checkpoints = Checkpoints(small_disk / "checkpoints")
    first = checkpoints.save(1, lambda folder: replace_text(folder / "weights", "good"))
    with pytest.raises(UsageError, match=f"step-000002 {FULL}"):
        checkpoints.save(2, write)
    assert checkpoints.all() == [(1, first)]
    assert [p.name for p in checkpoints.path.iterdir()] == ["step-000001"]


def test_metrics_on_a_full_disk_are_one_clear_error_and_go_on_where_they_were(small_disk: Path) -> None:
    log = MetricsLog(small_disk / "metrics.jsonl")
    log.append(0, {"reward": 0.5})
    stone = fill(small_disk)

    def go_on() -> None:
        while (step := len(log.read())) < 1000:  # the page that the file already has takes some more
            log.append(step, {"reward": 0.25})

    with pytest.raises(UsageError, match=f"{log.path} {FULL}"):
        go_on()
    written = len(log.read())
    stone.unlink()
    log.append(written, {"reward": 1.0})
    assert [row["step"] for row in log.read()] == list(range(written + 1))
    assert log.read()[-1] == {"step": written, "reward": 1.0}


def test_trajectories_on_a_full_disk_are_one_clear_error_and_leave_the_file_before(small_disk: Path) -> None:
    writer = TrajectoryWriter(small_disk / "trajectories")
    writer.append(1, chain())
    writer.flush(1)
    fill(small_disk)
    writer.append(1, chain())
    with pytest.raises(UsageError, match=f"step-000001-train.parquet {FULL}"):
        writer.flush(1)
    assert len(list(read_trajectories(small_disk / "trajectories"))) == 1
    assert [file.name for file in writer.path.iterdir()] == ["step-000001-train.parquet"]


def test_a_failed_run_tells_its_own_error_even_if_its_status_cannot_be_written(small_disk: Path) -> None:
    folder = RunFolder.create(small_disk, "demo", {})
    fill(small_disk)
    with pytest.raises(RuntimeError, match="the cause"), folder.recording_failure():
        raise RuntimeError("the cause")
    folder.release()
    assert folder.stale()
