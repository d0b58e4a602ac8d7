"""What a call into a sandbox costs: to a worker over its open stream, as a command, and by ``docker exec``.

    python benchmarks/sandbox_calls.py [--calls 300] [--image agentfly-sandbox]

AGENTFLY_BENCH_IMAGE names another image as well.

A call is one line of Python sent to a worker that evaluates it and answers. Kinds that this machine cannot run are left
out, with the reason. Milliseconds, medians of wall time: run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.resources.sandboxes.docker import DEFAULT_IMAGE
from agentfly_core.types import AgentFlyError, ResourceSpec

WORKER = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"


async def measure(repeat: int, call: Callable[[], Awaitable[Any]]) -> float:
    """The median of its milliseconds, after a few that do not count."""
    seconds = []
    for number in range(repeat + 5):
        begun = time.perf_counter()
        await call()
        if number >= 5:
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds) * 1000


async def sandbox_costs(provider: ProcessProvider | DockerProvider, kind: str, calls: int) -> dict[str, float]:
    """Of starting, a warm call, a command, a file, and a reset."""
    begun = time.perf_counter()
    sandbox = await provider.start(ResourceSpec(kind), run_id="benchmark")
    costs = {"start": (time.perf_counter() - begun) * 1000}
    try:
        worker = await sandbox.open([sandbox.python, "-I", "-S", "-c", WORKER])

        async def call() -> None:
            await worker.write(b"6 * 7\n")
            assert await worker.read() == b"42\n"

        async def run() -> None:
            assert (await sandbox.run(["true"], timeout=60)).exit_code == 0

        async def read() -> None:
            await sandbox.list_files()

        async def reset() -> None:
            assert await provider.reset(sandbox)

        costs["warm call"] = await measure(calls, call)
        for name, action in (("run true", run), ("list files", read), ("reset", reset)):
            costs[name] = await measure(max(10, calls // 10), action)
    finally:
        await provider.stop(sandbox)
    return costs


async def exec_cost(provider: DockerProvider, calls: int) -> float:
    """Of the same line of Python run by ``docker exec`` through the SDK in the same container."""
    sandbox = await provider.start(ResourceSpec("docker"), run_id="benchmark")
    client = provider._engine._client()

    def execute() -> None:
        made = client.exec_create(sandbox.id, [sandbox.python, "-I", "-S", "-c", "print(6 * 7)"])
        assert client.exec_start(made["Id"]) == b"42\n"

    async def call() -> None:
        execute()

    try:
        return await measure(max(10, calls // 20), call)
    finally:
        await provider.stop(sandbox)


async def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--image", default=os.environ.get("AGENTFLY_BENCH_IMAGE", DEFAULT_IMAGE))
    options = parser.parse_args()
    docker = DockerProvider(image=options.image)
    kinds: list[tuple[str, str, ProcessProvider | DockerProvider]] = [
        *((tier, "process", ProcessProvider(tier=tier)) for tier in ("bubblewrap", "landlock+seccomp", "rlimits")),
        ("docker", "docker", docker),
    ]
    print(f"{'milliseconds':<18}{'start':>10}{'warm call':>12}{'run true':>10}{'list files':>12}{'reset':>8}")
    for name, kind, provider in kinds:
        try:
            costs = await sandbox_costs(provider, kind, options.calls)
        except AgentFlyError as error:
            print(f"{name:<18}left out: {error}")
            continue
        widths = zip(costs.values(), (10, 12, 10, 12, 8), strict=True)
        print(f"{name:<18}" + "".join(f"{cost:>{width}.2f}" for cost, width in widths))
        if kind == "docker":
            print(f"{'docker exec':<18}{'':>10}{await exec_cost(docker, options.calls):>12.2f}")


if __name__ == "__main__":
    asyncio.run(main())
