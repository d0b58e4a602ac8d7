"""What a call of the code tools costs in sandboxes that are warm, and how long a first one takes.

    python benchmarks/code_interpreter.py [--calls 300] [--kind process] [--kind docker] [--image agentfly-sandbox]

Medians in milliseconds of wall time, one call after another. ``docker exec`` starts an interpreter in a running
container for each snippet, as many code tools do. AGENTFLY_BENCH_IMAGE names another image as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Awaitable, Callable

from agentfly_tools_code.files import ReadFile, WriteFile
from agentfly_tools_code.interpreter import CodeInterpreter
from agentfly_tools_code.shell import Shell

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.resources.sandboxes.docker import DEFAULT_IMAGE
from agentfly_core.types import AgentFlyError, ResourceProvider, ToolContext, ToolStatus, text_of


def provider(kind: str, image: str) -> ResourceProvider:
    """Of sandboxes of this kind."""
    return ProcessProvider() if kind == "process" else DockerProvider(image=image)


async def measure(call: Callable[[], Awaitable[object]], times: int) -> tuple[float, float]:
    """Median and 90th percentile, in milliseconds."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        await call()
        spent.append((time.perf_counter() - started) * 1e3)
    return statistics.median(spent), statistics.quantiles(spent, n=10)[-1]


async def bench(kind: str, image: str, calls: int) -> None:
    """One kind of sandbox."""
    served = provider(kind, image)
    manager = ResourceManager(InProcessCoordinator(), {kind: served})
    sandbox = {"kind": kind}
    python, fresh = CodeInterpreter(sandbox=sandbox), CodeInterpreter(sandbox=sandbox, stateless=True)
    shell, read, write = Shell(sandbox=sandbox), ReadFile(sandbox=sandbox), WriteFile(sandbox=sandbox)
    try:
        async with contextlib.AsyncExitStack() as scope:
            context = ToolContext(resources=manager, scope=scope)

            async def good(tool: CodeInterpreter | Shell | ReadFile | WriteFile, **arguments: str) -> None:
                outcome = await tool.call(arguments, context)
                assert outcome.status is ToolStatus.OK, text_of(outcome.content)

            started = time.perf_counter()
            await good(python, code="x = 1")
            print(f"{kind}: first call, sandbox and session started: {(time.perf_counter() - started) * 1e3:.0f} ms")
            await good(write, path="f", content="text")
            (held,) = context.state["agentfly_tools_code"].values()
            box = await held.get()
            rows: dict[str, Callable[[], Awaitable[object]]] = {
                "code_interpreter, warm": lambda: good(python, code="x + 1"),
                "code_interpreter, stateless": lambda: good(fresh, code="1 + 1"),
                "shell, warm": lambda: good(shell, command="echo $((1 + 1))"),
                "read_file, warm": lambda: good(read, path="f"),
                "a new interpreter for each call": lambda: box.run([box.python, "-c", "print(1 + 1)"], timeout=30),
            }
            for name, call in rows.items():
                try:
                    await call()
                except AssertionError as error:  # an image without bash
                    print(f"{kind}: {name}: not measured: {str(error).partition(chr(10))[0]}")
                    continue
                median, slow = await measure(call, calls if "warm" in name else max(10, calls // 20))
                print(f"{kind}: {name}: {median:.2f} ms (90%: {slow:.2f})")
    finally:
        await manager.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--kind", action="append", choices=["process", "docker"])
    parser.add_argument("--image", default=os.environ.get("AGENTFLY_BENCH_IMAGE", DEFAULT_IMAGE))
    options = parser.parse_args()
    for kind in options.kind or ["process", "docker"]:
        try:
            asyncio.run(bench(kind, options.image, options.calls))
        except AgentFlyError as error:
            print(f"{kind}: not measured: {error}")


if __name__ == "__main__":
    main()
