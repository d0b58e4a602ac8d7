"""Acquire and release pairs a second through a Redis server of its own: alone, and with everyone waiting.

    python benchmarks/redis_leases.py [--pairs 4000] [--users 100] [--rounds 5] [--url redis://...]

Needs redis-server (apt install redis-server), or a server's address.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentfly_core.resources import RedisCoordinator


async def pairs(url: str, count: int, users: int, capacity: int) -> float:
    """Pairs a second of ``users`` who take turns at the capacity."""
    coordinator = RedisCoordinator(url, {"box": capacity}, name=secrets.token_hex(4), lease_time=1.0)

    async def user(number: int) -> None:
        for _ in range(count // users):
            await coordinator.release(await coordinator.acquire("box", str(number), ttl=1.0))

    await user(-1)  # connects, and waits out the server's start
    began = time.perf_counter()
    await asyncio.gather(*(user(number) for number in range(users)))
    seconds = time.perf_counter() - began
    await coordinator.close()
    return count // users * users / seconds


def serve(folder: str) -> subprocess.Popen[bytes]:
    """A server without persistence on a unix socket."""
    command = ["redis-server", "--port", "0", "--unixsocket", f"{folder}/socket", "--save", "", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not Path(folder, "socket").exists():
        time.sleep(0.02)
    return process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url")
    options = parser.parse_args()
    if options.url is None and shutil.which("redis-server") is None:
        print("skipped: there is no redis-server (apt install redis-server), and no --url")
        sys.exit(0)
    with tempfile.TemporaryDirectory(prefix="redis") as folder:
        process = None if options.url else serve(folder)
        try:
            url = options.url or f"unix://{folder}/socket"
            for name, capacity in (("free", options.users), ("half wait", options.users // 2)):
                rates = [asyncio.run(pairs(url, options.pairs, options.users, capacity)) for _ in range(options.rounds)]
                print(f"{name:>10}: {statistics.median(rates):.0f} pairs/s ({options.users} users)", flush=True)
        finally:
            if process is not None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
