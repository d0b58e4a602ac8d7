"""One process runs a run, and that it does ends with the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfly_core.runs import RunFolder, lock
from agentfly_core.types import UsageError

TAKE = """
import os, subprocess, sys, time
from agentfly_core.runs import RunFolder
RunFolder.open(sys.argv[1]).take(shared="shared" in sys.argv)
{more}
os.write(1, b"taken\\n")
sys.stdin.read()
"""
FORKED = """
if not os.fork():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
"""
STARTED = "os.write(1, b'%d\\n' % subprocess.Popen(['sleep', '600'], close_fds=False).pid)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    made = RunFolder.create(tmp_path, "demo", {"name": "demo"})
    yield made
    made.release()


@contextmanager
def holder(folder: RunFolder, *shared: str, more: str = "") -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Another process that has taken the run, and what it has said: the PID of its child, if ``more`` starts one."""
    command = [sys.executable, "-c", TAKE.format(more=more), str(folder.path), *shared]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = sorted(process.stdout.readline().strip() for _ in range(2 if more else 1))
            assert said[-1] == "taken"
            yield process, said
        finally:
            process.kill()


def test_one_process_runs_a_run(folder: RunFolder) -> None:
    folder.update_status("finished")
    with holder(folder) as (other, _):
        for attempt in (folder.take, lambda: folder.take(shared=True), lambda: folder.update_status("running")):
            with pytest.raises(UsageError, match="is running"):
                attempt()
        assert folder.status().state == "finished"
        assert lock.is_held(folder.path)
        other.kill()
        other.wait()
        assert not lock.is_held(folder.path)
        folder.update_status("running")
        assert lock.is_held(folder.path)


def test_a_run_that_has_ended_is_nobodys(folder: RunFolder) -> None:
    folder.update_status(step=1)
    assert lock.is_held(folder.path)
    folder.update_status("stopped")
    assert lock.is_held(folder.path) is False
    with holder(folder):
        pass


def test_a_submitted_run_is_held_by_both(folder: RunFolder) -> None:
    folder.take(shared=True)
    with holder(folder, "shared"):
        folder.release()  # or the submitter is killed
        assert lock.is_held(folder.path)
        assert not folder.stale()
        with pytest.raises(UsageError, match="is running"):
            folder.take()
    assert folder.stale()


@pytest.mark.parametrize("more", [FORKED, STARTED], ids=["forked", "started"])
def test_children_do_not_keep_the_lock(folder: RunFolder, more: str) -> None:
    folder.release()
    with holder(folder, more=more) as (process, said):
        try:
            process.kill()
            process.wait()
            assert lock.is_held(folder.path) is False
        finally:
            os.kill(int(said[0]), signal.SIGKILL)


def test_a_folder_that_cannot_be_written_is_said_by_name(folder: RunFolder) -> None:
    folder.release()
    path = folder.path / ".lock"
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=f"{folder.path} cannot be written"):
        folder.take()


def test_without_locks_nothing_is_refused(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        folder.release()
        patched.setattr(lock, "fcntl", None)
        with holder(folder):
            folder.take()
            assert lock.is_held(folder.path) is None
            assert not folder.stale()
