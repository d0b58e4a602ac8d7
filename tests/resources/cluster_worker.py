"""One process of the cluster test: leases boxes through Redis and writes down what it starts and stops.

    python cluster_worker.py URL POOL CAPACITY LEASE_TIME LOG NAME HELD USERS

HELD leases are kept until the end; USERS take and return others. Each line of the log is JSON; lines of all processes
are in one order, as each is one small write to a file opened for appending.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from pathlib import Path

from agentfly_core.resources import RedisCoordinator, ResourceManager, drain_on_sigterm
from agentfly_core.types import Isolation, LeaseLost, ResourceError, ResourceSpec

url, pool, capacity, lease_time, path, name, held, users = sys.argv[1:]
log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
numbers = itertools.count()


def write(event: str, **facts) -> None:
    os.write(log, (json.dumps({"event": event, "process": name, "time": time.time(), **facts}) + "\n").encode())


class Logging(RedisCoordinator):
    """Writes down what the server has renewed, and when it was asked to: the share is good for a lease time from then.

    One that was asked but did not answer before the process was killed may never have heard of it.
    """

    async def renew(self, ticket, *, ttl=60.0):
        asked = time.time()
        renewed = await super().renew(ticket, ttl=ttl)
        write("renewed", ticket=ticket.id, asked=asked)
        return renewed

    async def attend(self, holder, *, ttl=60.0, patience=0.0):
        asked = time.time()
        wanted = await super().attend(holder, ttl=ttl, patience=patience)
        write("attended", asked=asked)
        return wanted


class Boxes:
    """Instances that exist from their line ``start`` to their line ``stop``."""

    isolation = Isolation.NONE

    async def start(self, spec, *, run_id):
        box = f"{name}-{next(numbers)}"
        write("start", box=box)
        return box

    async def health(self, instance):
        return True

    async def reset(self, instance):
        write("returned", box=instance)
        return True

    async def stop(self, instance):
        write("stop", box=instance)

    async def sweep(self, run_id):
        return 0

    async def runs(self):
        return frozenset()


async def hold(manager: ResourceManager, number: int, ended: asyncio.Event) -> None:
    try:
        async with manager.lease(ResourceSpec("box", "held"), owner=f"{name}-held-{number}") as lease:
            write("held", box=lease.resource, ticket=lease.ticket.id, since=lease.ticket.since)
            while not ended.is_set():
                assert lease.resource  # raises once the lease is lost
                await asyncio.sleep(0.05)
    except LeaseLost as error:
        write("lost", why=str(error))


async def use(manager: ResourceManager, number: int) -> None:
    while True:
        spec = ResourceSpec("box", f"kind {number % 2}")  # two specs, so that idle ones must make room
        try:
            async with manager.lease(spec, owner=f"{name}-user-{number}") as lease:
                write("leased", box=lease.resource, ticket=lease.ticket.id, since=lease.ticket.since)
                await asyncio.sleep(0.01 * (1 + number % 3))
        except LeaseLost as error:
            write("lost", why=str(error))
        except ResourceError as error:
            if "drained" in str(error) or "closed" in str(error):
                return
            write("failed", why=str(error))


async def main() -> None:
    coordinator = Logging(url, {"box": int(capacity)}, name=pool, lease_time=float(lease_time))
    manager = ResourceManager(coordinator, {"box": Boxes()}, ttl=float(lease_time))
    ended = asyncio.Event()

    async def follow() -> None:
        while not Path(f"{path}.end-{name}").exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
        ended.set()

    with drain_on_sigterm(manager, grace=30):
        holders = [hold(manager, n, ended) for n in range(int(held))]
        await asyncio.gather(follow(), *holders, *(use(manager, n) for n in range(int(users))))
        await asyncio.sleep(3600)  # until the drain has ended the process


asyncio.run(main())
