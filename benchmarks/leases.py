"""What a lease costs: acquire, reset and release of warm instances in one process, beside a bare ``asyncio.Queue``.

    python benchmarks/leases.py [--leases 4000] [--capacity 100] [--hold 0.01] [--rounds 5]

Wall time is compared with the bound leases x hold / capacity, CPU time (of the whole process) with that of as many
users of a queue, who sleep as long. The provider does nothing: only the manager and its coordinator are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.types import Isolation, ResourceSpec

Run = Callable[[int, int, float], Awaitable[None]]


class Nothing:
    """Instances without substance."""

    isolation = Isolation.NONE

    async def start(self, spec: ResourceSpec, *, run_id: str) -> Any:
        return object()

    async def health(self, instance: Any) -> bool:
        return True

    async def reset(self, instance: Any) -> bool:
        return True

    async def stop(self, instance: Any) -> None:
        return

    async def runs(self) -> frozenset[str]:
        return frozenset()

    async def sweep(self, run_id: str) -> int:
        return 0


async def leases(count: int, capacity: int, hold: float) -> None:
    """``count`` users at once lease one instance each."""
    manager = ResourceManager(InProcessCoordinator({"none": capacity}), {"none": Nothing()}, max_idle=capacity)
    spec = ResourceSpec("none")

    async def user(number: int) -> None:
        async with manager.lease(spec, owner=str(number)):
            await asyncio.sleep(hold)

    await asyncio.gather(*(user(number) for number in range(count)))
    await manager.close()


async def queue(count: int, capacity: int, hold: float) -> None:
    """The same with the least that could work."""
    instances: asyncio.Queue[int] = asyncio.Queue()
    for number in range(capacity):
        instances.put_nowait(number)

    async def user() -> None:
        instance = await instances.get()
        await asyncio.sleep(hold)
        instances.put_nowait(instance)

    await asyncio.gather(*(user() for _ in range(count)))


def measure(run: Run, count: int, capacity: int, hold: float) -> tuple[float, float]:
    """(wall seconds, CPU microseconds a lease)."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(run(count, capacity, hold))  # type: ignore[arg-type]
    return time.perf_counter() - wall, (time.process_time() - cpu) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leases", type=int, default=4000)
    parser.add_argument("--capacity", type=int, default=100)
    parser.add_argument("--hold", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measure(leases, 200, options.capacity, 0.0)  # warm up
    print(f"capacity {options.capacity}, {options.hold * 1e3:g} ms hold, median of {options.rounds}")
    print(f"{'users':>6} {'bound s':>8} {'leases s':>9} {'of bound':>9} {'us/lease':>9} {'queue s':>8} {'us/user':>8}")
    for count in sorted({200, 1000, options.leases}):
        rounds = [
            (
                *measure(leases, count, options.capacity, options.hold),
                *measure(queue, count, options.capacity, options.hold),
            )
            for _ in range(options.rounds)
        ]
        wall, cpu, queue_wall, queue_cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
        bound = count * options.hold / options.capacity
        row = f"{count:6} {bound:8.3f} {wall:9.3f} {bound / wall:9.0%} {cpu:9.1f} {queue_wall:8.3f} {queue_cpu:8.1f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
