"""Whole runs on real Ray, vLLM and DeepSpeed, in the environment of ``cpu/environment.txt`` (``nox -s openrlhf``)."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.runs import RunFolder, read_trajectories

CPU_OPTIONS = {"colocate": "none", "vllm.enforce_eager": True, "vllm.sync_backend": "gloo"}

ENVIRONMENT = {
    "OPENRLHF_CPU": "1",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}

HEAD = "OPENRLHF_TEST_HEAD"
"""Marks the processes of a cluster that a test starts."""

SECONDS = 1500
"""For a whole run on a slow and busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * SECONDS))


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    if importlib.util.find_spec("openrlhf_cpu") is None:
        reason = "needs the environment of tests/cpu/environment.txt: nox -s openrlhf"
        if os.environ.get("REQUIRE_OPENRLHF") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@dataclass
class Run:
    """A started command, and what it left."""

    process: subprocess.Popen[str]
    root: Path
    dumps: Path
    log: Path
    _folder: RunFolder | None = field(default=None)

    @property
    def folder(self) -> RunFolder:
        """Waits until it is there."""
        while self._folder is None:
            found = [path for path in self.root.glob("*") if (path / "status.json").exists()]
            if found:
                self._folder = RunFolder.open(max(found, key=lambda path: path.stat().st_mtime))
            elif self.process.poll() is not None:
                pytest.fail(self.said())
            time.sleep(0.2)
        return self._folder

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.said()}")

    def wait_for(self, what: Callable[[], Any], seconds: float = SECONDS) -> None:
        """Until ``what()`` is true."""
        deadline = time.monotonic() + seconds
        while not what():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the run ended, or it took too long:\n{self.said()}")
            time.sleep(0.2)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def metrics(self) -> list[dict[str, float]]:
        return self.folder.metrics.read()

    def chains(self, split: str = "train") -> list[Any]:
        return [t for t in read_trajectories(self.folder.path) if t.split == split]

    def processes(self) -> dict[int, str]:
        """Command lines of all processes that carry the mark of one of the run's launches."""
        return _marked(f"AGENTFLY_OPENRLHF_JOB={self.folder.path}/".encode())


@pytest.fixture
def agentfly(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts ``agentfly train``: RECIPE, then overrides as keywords with dots written ``__``; ``options`` are those of
    the learner. Everything that is left in the end is killed."""
    started: list[Run] = []

    def start(
        *arguments: str,
        options: dict[str, Any] | None = None,
        gpus: int = 4,
        resume: Run | None = None,
        **overrides: Any,
    ) -> Run:
        root = tmp_path / "runs"
        dumps = tmp_path / f"dump-{len(started)}"
        if resume is None:
            overrides = {"run__root": str(root), "learner__name": "openrlhf", **overrides}
            overrides["learner__options"] = {**CPU_OPTIONS, **(options or {})}
        else:
            arguments = ("--resume", str(resume.folder.path), *arguments)
        said = [f"{name.replace('__', '.')}={json.dumps(value)}" for name, value in overrides.items()]
        log = tmp_path / f"log-{len(started)}.txt"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "agentfly_core", "train", *arguments, *said],
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
                env={**os.environ, **ENVIRONMENT, "OPENRLHF_CPU_GPUS": str(gpus), "OPENRLHF_CPU_DUMP": str(dumps)},
                start_new_session=True,
            )
        run = Run(process, root, dumps, log, resume.folder if resume else None)
        started.append(run)
        return run

    yield start
    for run in started:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
        if any(run.root.glob("*/status.json")):
            for pid in run.processes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[str]:
    """A Ray cluster that runs already; the address of its dashboard."""
    bin = Path(sys.executable).parent
    path = f"{bin}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **ENVIRONMENT, "OPENRLHF_CPU_GPUS": "2", "PATH": path, HEAD: str(tmp_path)}
    command = [str(bin / "ray"), "start", "--head", "--block", "--dashboard-port=8287", "--port=6397"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True)
    address = "http://127.0.0.1:8287"
    try:
        _wait_for_answer(f"{address}/api/version", process)
        yield address
    finally:
        process.terminate()
        process.wait(120)
        for pid in _marked(f"{HEAD}={tmp_path}".encode()):  # Ray leaves processes of its dashboard behind
            os.kill(pid, signal.SIGKILL)


def _marked(mark: bytes) -> dict[int, str]:
    """Command lines of the processes that were started with this in their environment."""
    found = {}
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and mark in (path / "environ").read_bytes():
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(path.name)] = command
        except OSError:
            continue
    return found


def _wait_for_answer(url: str, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no answer from {url}")
            time.sleep(0.5)
