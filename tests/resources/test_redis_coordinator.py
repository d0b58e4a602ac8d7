"""What the Redis coordinator adds to the rules of ``check_coordinator``: outages, restarts, limits, dead waiters."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

from agentfly_core.testing import check_coordinator
from agentfly_core.types import LeaseLost, ResourceError, UsageError

pytest.importorskip("redis")
from agentfly_core.resources.redis_coordinator import RedisCoordinator
from agentfly_core.resources.redis_link import shown

numbers = itertools.count()


def name() -> str:
    return f"pool-{next(numbers)}"


async def somebody_waits(coordinator: RedisCoordinator, count: int = 1) -> None:
    while (await coordinator.status())[0].waiting < count:  # noqa: ASYNC110 - another process would not see an event
        await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def server(redis_servers):
    return redis_servers()


def test_it_keeps_the_contract_on_a_simulated_server():
    fakeredis = pytest.importorskip("fakeredis")
    pytest.importorskip("lupa")
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.server_address
    try:
        url = f"redis://{host}:{port}"
        check_coordinator(lambda capacity, total: RedisCoordinator(url, capacity, total, name=name()), steps=30)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_it_keeps_the_contract_on_a_real_server(server):
    def make(capacity, total):
        return RedisCoordinator(server.url, capacity, total, name=server.known(name()))

    check_coordinator(make)


def test_two_processes_worth_of_coordinators_share_one_capacity(server):
    async def main():
        pool = server.known(name())
        one, two = (RedisCoordinator(server.url, {"box": 1}, name=pool) for _ in range(2))
        ticket = await one.acquire("box", "a")
        waiting = asyncio.create_task(two.acquire("box", "b"))
        await somebody_waits(one)
        await one.release(ticket)
        assert (await asyncio.wait_for(waiting, 30)).fence == ticket.fence + 1
        await one.close()
        await two.close()

    asyncio.run(main())


def test_a_waiter_that_died_blocks_nobody(server, monkeypatch):
    monkeypatch.setattr("agentfly_core.resources.redis_coordinator.PATIENCE", 2.0)

    async def main():
        pool = server.known(name())
        dead, alive = (RedisCoordinator(server.url, {"box": 2}, name=pool) for _ in range(2))
        held = await alive.acquire("box", "held")
        doomed = asyncio.create_task(dead.acquire("box", "large", amount=2))
        await somebody_waits(alive)
        dead._loop.close()  # as if its process had been killed: it says no more that it waits
        doomed.cancel()
        ticket = await asyncio.wait_for(alive.acquire("box", "small"), 60)
        await alive.release(ticket)
        await alive.release(held)
        await alive.close()
        await asyncio.wait({doomed})

    asyncio.run(main())


def test_limits_must_agree_as_long_as_the_pool_is_used(server):
    async def main():
        pool = server.known(name())
        one, other = (RedisCoordinator(server.url, {"box": n}, name=pool) for n in (1, 2))
        ticket = await one.acquire("box", "a")
        with pytest.raises(UsageError, match=r'limits {"box": 1}, this run by {"box": 2}: make them equal'):
            await other.acquire("box", "b")
        await one.release(ticket)
        await other.release(await other.acquire("box", "b"))  # nobody uses it by the old ones any more
        await one.close()
        await other.close()

    asyncio.run(main())


def test_an_unreachable_server_is_one_clear_error_without_the_password():
    async def main():
        coordinator = RedisCoordinator("redis://me:secret@127.0.0.1:1/0", {"box": 1}, timeout=2)
        with pytest.raises(ResourceError, match=r"redis://me:\*\*\*@127.0.0.1:1/0 cannot be reached: .*Does a Redis"):
            await coordinator.acquire("box", "a")
        await coordinator.close()

    asyncio.run(main())
    assert shown("unix:///a?password=x&db=1") == "unix:///a?password=***&db=1"
    assert shown("redis://:se@cret@h:1/0") == shown("redis://:hun/ter2@h:1/0") == "redis://:***@h:1/0"
    assert shown("redis://h:6379/0") == "redis://h:6379/0"
    with pytest.raises(UsageError, match="is no address of a Redis server"):
        RedisCoordinator("http://example.org")
    with pytest.raises(UsageError) as wrong:
        RedisCoordinator("redis://:hun/ter2@example.org")
    assert str(wrong.value).startswith("redis://:***@example.org is no address")
    assert "hun" not in str(wrong.value)


def test_a_password_is_asked_for_and_given(redis_servers):
    server = redis_servers("--requirepass", "secret")

    async def main():
        wrong, right = (RedisCoordinator(f"{server.url}?password={p}", {"box": 1}) for p in ("nonsense", "secret"))
        with pytest.raises(ResourceError, match=r"cannot be reached: .*(password|WRONGPASS)"):
            await wrong.status()
        await right.attend("me")
        assert (await right.status())[0].granted == 0
        await wrong.close()
        await right.close()

    asyncio.run(main())


def test_after_a_restart_holders_come_back_before_anything_is_granted(redis_servers):
    """A lease time of grace: what was held is held again, who waited keeps waiting, and a newcomer gets nothing."""
    server = redis_servers()

    async def main():
        pool, lease = server.known(name()), 6.0
        one = RedisCoordinator(server.url, {"box": 2}, name=pool, lease_time=lease)
        other = RedisCoordinator(server.url, {"box": 2}, name=pool, lease_time=lease)
        held = await one.acquire("box", "held", ttl=lease)
        await one.attend("me", ttl=lease)
        await one.release(await one.acquire("box", "idle", ttl=lease, holder="me"), idle=True)
        waiting = asyncio.create_task(one.acquire("box", "large", ttl=lease, amount=2))
        await somebody_waits(other)
        server.kill()
        started = time.time()
        server.start()
        newcomer = asyncio.create_task(other.acquire("box", "newcomer", ttl=lease))
        held = await one.renew(held, ttl=lease)
        total, box = await other.status()
        assert (total.granted, total.idle, box.tickets[0].owner) == (1, 0, "held")
        with pytest.raises(LeaseLost):  # what is idle must be stopped before anything is granted
            await one.attend("me", ttl=lease)
        await one.release(held)
        await one.leave("me")

        async def served(task, coordinator):
            ticket = await asyncio.wait_for(task, 60)
            await coordinator.release(ticket)
            return ticket

        tickets = await asyncio.gather(served(waiting, one), served(newcomer, other))
        assert min(ticket.since for ticket in tickets) >= started + lease - 0.01
        assert min(ticket.fence for ticket in tickets) > held.fence
        await one.close()
        await other.close()

    asyncio.run(main())


@pytest.mark.parametrize("lost", ["FLUSHALL", "DEL meta"])
@pytest.mark.parametrize("first", ["holder", "other", "newcomer"])
def test_a_server_that_was_emptied_is_told_again_and_keeps_to_the_capacity(redis_servers, lost, first):
    """Whoever notices it first: nothing is granted for a lease time, in which what is held is told."""
    server = redis_servers()

    async def main():
        pool, lease = server.known(name()), 5.0

        def member():
            return RedisCoordinator(server.url, {"box": 2}, name=pool, lease_time=lease)

        holder, other = member(), member()
        held = await holder.acquire("box", "held", ttl=lease)
        await other.release(await other.acquire("box", "before", ttl=lease))
        assert server.ask(lost.replace("meta", f"agentfly:{{{pool}}}:meta")).startswith((b"+OK", b":1"))
        emptied = time.time()
        if first == "newcomer":
            newcomer = member()
            await newcomer.status()
            await newcomer.close()

        async def hold():
            while True:
                await holder.renew(held, ttl=lease)
                await asyncio.sleep(0.5)

        if first != "other":
            await holder.renew(held, ttl=lease)
        wanted = [asyncio.create_task(other.acquire("box", f"w{i}", ttl=lease)) for i in range(2)]
        await somebody_waits(other, 2)
        holding = asyncio.create_task(hold())
        got, waiting = await asyncio.wait(wanted, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert (len(got), len(waiting)) == (1, 1)  # the other one was held all the time
        assert got.pop().result().since >= emptied + lease - 1
        total, box = await other.status()
        assert (total.granted, box.capacity, box.waiting) == (2, 2, 1)
        holding.cancel()
        await holder.release(held)
        await asyncio.wait_for(waiting.pop(), 60)
        await holder.close()
        await other.close()

    asyncio.run(main())


def test_an_outage_is_waited_out_and_ends_in_an_error_only_when_it_lasts(redis_servers):
    server = redis_servers()

    async def main():
        coordinator = RedisCoordinator(server.url, {"box": 1}, name=server.known(name()), outage=1.0)
        ticket = await coordinator.acquire("box", "a")
        waiting = asyncio.create_task(coordinator.acquire("box", "b"))
        server.kill()
        with pytest.raises(ResourceError, match="cannot be reached"):
            await coordinator.renew(ticket)
        with pytest.raises(ResourceError, match="cannot be reached"):
            await asyncio.wait_for(waiting, 60)
        server.start()
        assert (await coordinator.renew(ticket)).id == ticket.id  # it was told to the server that had forgotten it
        await coordinator.close()

    asyncio.run(main())
