"""A sandbox of each kind that this machine can run.

A kind that it cannot run is skipped with the reason, unless REQUIRE_SANDBOXES=1 (for processes) or REQUIRE_DOCKER=1
says that it must be there; the latter also starts an engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.types import IsolationReport, ResourceError, ResourceSpec, Sandbox

SCRIPT = Path(__file__).parents[1] / "services/docker_engine.py"
RUN = f"test-{os.getpid()}"
LIMITS = {"memory": 256, "pids": 24, "cpu": 1.0, "disk": 16}
PROCESS_TIERS = ("bubblewrap", "landlock+seccomp", "rlimits")
KINDS = (*PROCESS_TIERS, "docker")


def _engine_module() -> Any:
    spec = importlib.util.spec_from_file_location("docker_engine_for_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENGINE = _engine_module()


@functools.cache
def engine_missing() -> str:
    """Why there is no engine for the tests; empty if there is one."""
    if importlib.util.find_spec("docker") is None:
        return "the package docker is not installed"
    required = os.environ.get("REQUIRE_DOCKER") == "1"
    if required:
        subprocess.run([sys.executable, str(SCRIPT)], check=True, timeout=280)
    return "" if ENGINE.answers() else f"no Docker engine: run, as root, {SCRIPT.name}"


@functools.cache
def provider_of(kind: str) -> ProcessProvider | DockerProvider | str:
    """The provider of a kind, or why there is none."""
    if kind == "docker":
        return engine_missing() or DockerProvider(image=ENGINE.IMAGE, base_url=ENGINE.HOST, **LIMITS)
    provider = ProcessProvider(tier=kind, **LIMITS)
    try:
        provider.report()
    except ResourceError as error:
        return str(error)
    return provider


def need(kind: str) -> ProcessProvider | DockerProvider:
    """The provider of a kind; skips, or fails where it is required, if there is none."""
    provider = provider_of(kind)
    if isinstance(provider, str):
        required = os.environ.get("REQUIRE_DOCKER" if kind == "docker" else "REQUIRE_SANDBOXES") == "1"
        (pytest.fail if required else pytest.skip)(f"no {kind} sandbox here: {provider}")
    return provider


class Bench:
    """Runs async scenarios against sandboxes of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.provider = need(kind)

    @property
    def report(self) -> IsolationReport:
        return self.provider.report()

    async def start(self, *, run_id: str = RUN, **fields: Any) -> Any:
        """A fresh sandbox, to be stopped by the caller."""
        kind = "docker" if self.kind == "docker" else "process"
        return await self.provider.start(ResourceSpec.make(kind, **fields), run_id=run_id)

    @contextlib.asynccontextmanager
    async def sandbox(self, **fields: Any):
        """A fresh sandbox; nothing is left of it afterwards."""
        sandbox = await self.start(**fields)
        try:
            yield sandbox
        finally:
            await self.provider.stop(sandbox)

    def run(self, scenario: Callable[[Sandbox], Any], **fields: Any) -> Any:
        """``await scenario(sandbox)`` in a sandbox as new; a plain one is used again after a reset."""

        async def main() -> Any:
            if fields:
                async with self.sandbox(**fields) as sandbox:
                    return await scenario(sandbox)
            sandbox = WARM.pop(self.kind, None) or await self.start()
            try:
                return await scenario(sandbox)
            finally:
                if await self.provider.health(sandbox) and await self.provider.reset(sandbox):
                    sandbox.valid_until = math.inf
                    WARM[self.kind] = sandbox
                else:
                    await self.provider.stop(sandbox)

        return asyncio.run(main())


WARM: dict[str, Any] = {}
"""Sandboxes that were reset, by kind."""


@pytest.fixture(scope="session", autouse=True)
def _stop_warm():
    yield
    for kind, sandbox in WARM.items():
        asyncio.run(need(kind).stop(sandbox))


async def python(sandbox: Sandbox, code: str, *arguments: str, timeout: float = 60) -> Any:
    """What code prints inside, as JSON."""
    done = await sandbox.run([sandbox.python, "-I", "-c", code, *arguments], timeout=timeout)
    assert done.exit_code == 0, done
    return json.loads(done.stdout)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    """Each kind of sandbox in turn."""
    return Bench(request.param)


@pytest.fixture
def docker_bench() -> Bench:
    return Bench("docker")


@pytest.fixture(name="python")
def python_fixture() -> Callable[..., Any]:
    """Runs code inside and returns what it prints, as JSON."""
    return python


@pytest.fixture
def engine() -> Any:
    """The module that starts the tests' engine; skips without one."""
    need("docker")
    return ENGINE
