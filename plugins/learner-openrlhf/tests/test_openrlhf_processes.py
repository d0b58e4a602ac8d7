"""No process outlives what it belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agentfly_learner_openrlhf.job import ENV
from agentfly_learner_openrlhf.orphans import OWNER, end_left, left_of, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="OpenRLHF runs on Linux")

OWNER_SCRIPT = """
import subprocess, sys, time
from agentfly_learner_openrlhf.orphans import own_children
own_children()
child = subprocess.Popen([sys.executable, "-c", '''
import time
from agentfly_learner_openrlhf.orphans import watch_owner
watch_owner()
print("watching", flush=True)
time.sleep(600)
'''], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(600)
"""


def test_an_engine_ends_with_its_actor() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER_SCRIPT], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, said = owner.stdout.readline().split()
    assert said == "watching"
    began = started(int(pid))
    assert began
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 60
    while started(int(pid)) == began:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)


COMMAND_SCRIPT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs these tests in the background ignores it
actor = subprocess.Popen([sys.executable, "-c", '''
import subprocess, sys
from agentfly_learner_openrlhf.orphans import leave_group
leave_group()
leave_group()
engine = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=subprocess.PIPE)
print(engine.pid, flush=True)
engine.wait()
'''])
time.sleep(600)
"""


def test_ctrl_c_in_the_terminal_does_not_reach_an_engine() -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND_SCRIPT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert command.stdout is not None
    engine = max(int(command.stdout.readline()) for _ in range(2))
    began = started(engine)
    try:
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(60) == -signal.SIGINT
        assert os.getpgid(engine) != command.pid
        assert began
        assert started(engine) == began
    finally:
        os.killpg(os.getpgid(engine), signal.SIGKILL)


def test_a_process_of_nobody_watches_nobody() -> None:
    script = "from agentfly_learner_openrlhf.orphans import watch_owner\nimport threading\nwatch_owner()\n"
    script += "print(threading.active_count())"
    environment = {name: value for name, value in os.environ.items() if name != OWNER}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "1\n", done.stderr


def test_a_dead_process_is_gone_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert started(child.pid)
    child.kill()
    deadline = time.monotonic() + 60
    while started(child.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert child.wait() == -signal.SIGKILL
    assert started(child.pid) == ""


def test_what_is_left_of_a_launch_is_ended(tmp_path: Path) -> None:
    job, other = tmp_path / "job-1.json", tmp_path / "job-2.json"
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(1, flush=True)\ninput()"
    children = []
    for mark in (job, job, other):
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, ENV: str(mark)},
        )
        assert child.stdout is not None
        child.stdout.readline()
        children.append(child)
    try:
        assert sorted(left_of(job)) == sorted(child.pid for child in children[:2])
        assert end_left(job, patience=0.5) == []
        assert [child.wait(60) for child in children[:2]] == [-signal.SIGKILL] * 2
        assert left_of(other) == [children[2].pid]
        assert children[2].poll() is None
    finally:
        for child in children:
            child.kill()
            child.wait()
