"""The simulator needs Java: without it these tests are skipped, unless REQUIRE_JAVA=1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agentfly_envs_scienceworld.simulator import Simulator

Gold = Callable[[str, int], list[str]]


@pytest.fixture(scope="session")
def java() -> str:
    found = shutil.which("java")
    if found is None:
        assert os.environ.get("REQUIRE_JAVA") != "1", "REQUIRE_JAVA=1, but there is no java on the PATH"
        pytest.skip("no java on the PATH (apt install openjdk-17-jre-headless)")
    return found


@pytest.fixture(scope="session")
def gold(java: str) -> Iterator[Gold]:
    """Finds the gold path of a task's variation in the easy world."""
    simulator = Simulator()

    def find(task: str, variation: int) -> list[str]:
        simulator.load(task, variation, ["easy"], gold=True)
        return simulator.gold_path()

    yield find
    simulator.close()


def jvms_under(*roots: int) -> set[int]:
    """The Java processes among the living descendants of some processes. Needs /proc."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state != "Z":
            parents[int(folder.name)] = int(parent), name
    known, found = set(roots), set()
    for _ in parents:  # as deep as the tree can be
        more = {pid for pid, (parent, _) in parents.items() if parent in known} - known
        if not more:
            break
        known |= more
    found = {pid for pid in known if pid in parents and parents[pid][1] == "java"}
    return found
