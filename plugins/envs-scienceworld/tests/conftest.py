"""The simulator needs Java: without it these tests are skipped, unless REQUIRE_JAVA=1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

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
