from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfly_core.resources import InProcessCoordinator, ObjectProvider, ResourceManager, WorkerProvider
from agentfly_core.types import Isolation, LeaseLost, ResourceError, ResourceSpec, UnknownName

TARGETS = str(Path(__file__).with_name("targets.py"))


class Counting(ObjectProvider):
    """The object provider, counting what it starts and stops, with switches for faults."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list = []
        self.started = self.stopped = 0
        self.start_delay = self.reset_delay = 0.0
        self.fail_start = self.fail_reset = self.fail_stop = self.sick = False
        self.reached: set[str] = set()

    async def start(self, spec, *, run_id):
        self.reached.add("starting")
        if self.start_delay:
            await asyncio.sleep(self.start_delay)
        if self.fail_start:
            raise OSError("no room")
        handle = await super().start(spec, run_id=run_id)
        self.live.append(handle)
        self.started += 1
        return handle

    async def health(self, instance):
        return not self.sick and await super().health(instance)

    async def reset(self, instance):
        self.reached.add("resetting")
        await asyncio.sleep(self.reset_delay)
        if self.fail_reset:
            raise RuntimeError("no reset today")
        return await super().reset(instance)

    async def stop(self, instance):
        if instance in self.live:
            self.live.remove(instance)
            self.stopped += 1
        await super().stop(instance)
        if self.fail_stop:
            raise RuntimeError("no stop today")


def spec_of(name: str = "Thing", kind: str = "object", **options) -> ResourceSpec:
    return ResourceSpec.make(kind, f"{TARGETS}:{name}", options=options)


def pool(capacity: int | None = None, **arguments) -> tuple[ResourceManager, Counting, InProcessCoordinator]:
    provider, coordinator = Counting(), InProcessCoordinator({} if capacity is None else {"object": capacity})
    return ResourceManager(coordinator, {"object": provider}, **arguments), provider, coordinator


async def held(coordinator: InProcessCoordinator) -> int:
    return (await coordinator.status())[0].granted


async def until(true: Callable[[], bool]) -> None:
    """Wait for it; the test's own time limit ends what never comes."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_an_equal_spec_gets_the_warm_instance_as_new_and_another_spec_does_not():
    async def main():
        manager, provider, coordinator = pool()
        async with manager.lease(spec_of(start=1), owner="a") as lease:
            first = lease.resource
            assert await first.call("add", 5) == 6
        async with manager.lease(spec_of(start=1), owner="b") as lease:
            assert lease.resource is first
            assert await first.call("add") == 2
            async with manager.lease(spec_of(start=1), owner="c") as other:  # in use is in use
                assert other.resource is not first
        for different in (spec_of(start=2), spec_of(start=True), spec_of(start=1.0), spec_of(start=1, log="")):
            async with manager.lease(different, owner="d") as lease:
                assert lease.resource.spec == different
                assert repr(lease.resource.spec) == repr(different)
        assert provider.started == 6
        await manager.close()
        assert provider.live == []
        assert await held(coordinator) == 0

    asyncio.run(main())


def test_capacity_holds_and_everyone_gets_a_turn():
    async def main():
        manager, provider, coordinator = pool(2)
        inside = peak = 0
        full = asyncio.Event()

        async def user(number):
            nonlocal inside, peak
            async with manager.lease(spec_of(), owner=str(number)) as lease:
                inside += 1
                peak = max(peak, inside)
                if inside == 2:
                    full.set()
                await full.wait()  # the first stays until a second is there
                await lease.resource.call("add")
                inside -= 1

        await asyncio.gather(*(user(i) for i in range(20)))
        assert peak == 2
        assert provider.started == 2
        assert await held(coordinator) == 0
        await manager.close()

    asyncio.run(main())


def test_idle_instances_of_other_specs_make_room():
    async def main():
        manager, provider, _ = pool(2)
        for start in (1, 2):
            async with manager.lease(spec_of(start=start), owner="a"):
                pass
        assert len(provider.live) == 2
        async with manager.lease(spec_of(start=3), owner="a"):  # the longest idle goes
            assert [h.spec.arguments()["start"] for h in provider.live] == [2, 3]
            async with manager.lease(spec_of(start=2), owner="b"):
                assert (len(provider.live), provider.started) == (2, 3)
        await manager.close()

    asyncio.run(main())


def test_the_total_makes_room_too():
    async def main():
        provider, other = Counting(), Counting()
        coordinator = InProcessCoordinator(total=1)
        manager = ResourceManager(coordinator, {"object": provider, "second": other})
        async with manager.lease(spec_of(), owner="a"):
            pass
        async with manager.lease(spec_of(kind="second"), owner="a"):
            assert (len(provider.live), len(other.live)) == (0, 1)
        await manager.close()

    asyncio.run(main())


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (1, 1), (5, 3)])
def test_no_more_than_the_idle_limit_is_kept(limit, kept):
    async def main():
        manager, provider, _ = pool(max_idle=limit)
        inside, full = 0, asyncio.Event()

        async def user(number):
            nonlocal inside
            async with manager.lease(spec_of(), owner=str(number)):
                inside += 1
                if inside == 3:
                    full.set()
                await full.wait()

        await asyncio.gather(*(user(i) for i in range(3)))
        assert len(provider.live) == kept
        await manager.close()
        assert provider.live == []

    asyncio.run(main())


def test_isolation_fails_closed_before_anything_is_acquired():
    async def main():
        manager, provider, coordinator = pool(1)
        spec = ResourceSpec.make("object", f"{TARGETS}:Thing", min_isolation=Isolation.SANDBOX)
        with pytest.raises(ResourceError, match="demands isolation SANDBOX, but 'object' gives only NONE"):
            async with manager.lease(spec, owner="a"):
                pass
        with pytest.raises(UnknownName, match="did you mean 'object'"):
            async with manager.lease(ResourceSpec.make("objekt"), owner="a"):
                pass
        assert provider.started == await held(coordinator) == 0

    asyncio.run(main())


def test_a_failed_start_gives_the_capacity_back():
    async def main():
        manager, provider, coordinator = pool(1)
        provider.fail_start = True
        with pytest.raises(ResourceError, match="cannot be started: OSError: no room"):
            async with manager.lease(spec_of(), owner="a"):
                pass
        provider.fail_start = False
        async with manager.lease(spec_of(), owner="b") as lease:
            assert await lease.resource.call("add") == 1
        await manager.close()
        assert await held(coordinator) == 0

    asyncio.run(main())


@pytest.mark.parametrize("when", ["waiting", "starting", "using", "resetting"])
def test_a_chain_cancelled_at_any_moment_leaks_nothing(when):
    async def main():
        manager, provider, coordinator = pool(1)

        async def chain():
            provider.reached.add("waiting")
            async with manager.lease(spec_of(), owner="chain"):
                provider.reached.add("using")
                await asyncio.sleep(0 if when == "resetting" else 30)

        blocker = await coordinator.acquire("object", "blocker") if when == "waiting" else None
        provider.start_delay = 30 if when == "starting" else 0
        provider.reset_delay = 1.0 if when == "resetting" else 0
        task = asyncio.create_task(chain())
        await until(lambda: when in provider.reached)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # twice, as an impatient engine would
        with pytest.raises(asyncio.CancelledError):
            await task
        if blocker:
            await coordinator.release(blocker)
        assert await held(coordinator) == 0
        provider.start_delay = provider.reset_delay = 0
        async with manager.lease(spec_of(), owner="next") as lease:
            assert await lease.resource.call("add") == 1
        await manager.close()
        assert provider.live == []

    asyncio.run(main())


def test_an_abandoned_call_means_another_instance_for_the_next():
    async def main():
        manager, provider, _ = pool(1)
        calling = asyncio.Event()

        async def chain():
            async with manager.lease(spec_of(), owner="chain") as lease:
                call = asyncio.ensure_future(lease.resource.call("add_later", 1, delay=30))
                await asyncio.sleep(0)
                calling.set()
                await call

        task = asyncio.create_task(chain())
        await calling.wait()
        task.cancel()
        await asyncio.wait({task})
        async with manager.lease(spec_of(), owner="next") as lease:
            assert await lease.resource.call("add") == 1
        assert (provider.started, provider.stopped) == (2, 1)
        await manager.close()

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["fail_reset", "fail_stop", "sick"])
def test_faults_of_a_provider_are_logged_and_cost_only_the_instance(fault, caplog):
    async def main():
        manager, provider, coordinator = pool(1)
        async with manager.lease(spec_of("Stubborn" if fault == "fail_stop" else "Thing"), owner="a"):
            setattr(provider, fault, fault != "sick")
        provider.sick = fault == "sick"
        async with manager.lease(spec_of(), owner="b") as lease:
            provider.fail_reset = provider.fail_stop = provider.sick = False
            assert await lease.resource.call("add") == 1
        assert (provider.started, provider.stopped) == (2, 1)
        assert await held(coordinator) == 0
        await manager.close()

    with caplog.at_level(logging.WARNING, "agentfly.resources"):
        asyncio.run(main())
    assert bool(caplog.records) is (fault != "sick")


def test_a_lease_is_renewed_while_held():
    async def main():
        manager, _, coordinator = pool(1, renew_every=0.1)
        async with manager.lease(spec_of(), owner="a") as lease:
            granted_until = lease.ticket.expires_at
            await until(lambda: lease.ticket.expires_at > granted_until)
            assert await lease.resource.call("add") == 1
            assert await held(coordinator) == 1
        with pytest.raises(LeaseLost, match="released"):
            _ = lease.resource
        await manager.close()

    asyncio.run(main())


def test_a_lost_lease_says_so_and_its_instance_is_stopped():
    async def main():
        manager, provider, coordinator = pool(1, renew_every=0.1)
        async with manager.lease(spec_of(), owner="a") as lease:
            await coordinator.release(lease.ticket)  # as if it had run out elsewhere
            await until(lambda: not provider.live)
            with pytest.raises(LeaseLost, match=r"a: the lease of object .* is over"):
                _ = lease.resource
            assert provider.live == []
        async with manager.lease(spec_of(), owner="b"):
            assert provider.started == 2
        await manager.close()

    asyncio.run(main())


def test_a_lease_has_a_time_limit():
    async def main():
        manager, provider, coordinator = pool(1, lease_limit=0.2)
        async with manager.lease(spec_of(), owner="a") as lease:
            await until(lambda: lease.lost)
            with pytest.raises(LeaseLost, match=r"it lasted 0.2 s, the limit"):
                _ = lease.resource
        assert (provider.live, await held(coordinator)) == ([], 0)
        await manager.close()

    asyncio.run(main())


def test_a_dead_worker_loses_its_lease_and_the_next_gets_another():
    async def main():
        manager = ResourceManager(InProcessCoordinator({"worker": 1}), {"worker": WorkerProvider()}, renew_every=0.1)
        spec = spec_of(kind="worker")
        async with manager.lease(spec, owner="a") as lease:
            os.kill(lease.resource.pid, signal.SIGKILL)
            await until(lambda: lease.lost)
            with pytest.raises(LeaseLost, match="instance died"):
                _ = lease.resource
        async with manager.lease(spec, owner="b") as lease:
            assert await lease.resource.call("add") == 1
            pid = lease.resource.pid
        async with manager.lease(spec, owner="c") as lease:
            assert lease.resource.pid == pid
        await manager.close()

    asyncio.run(main())


def test_close_from_another_loop_stops_idle_and_leased_instances():
    manager = ResourceManager(InProcessCoordinator(), {"worker": WorkerProvider()})
    leased = asyncio.Event()

    async def engine():
        async with manager.lease(spec_of(kind="worker"), owner="idle"):
            pass
        async with manager.lease(spec_of(kind="worker"), owner="holder") as lease:
            leased.set()
            call = asyncio.create_task(lease.resource.call("hang", 30))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(asyncio.run, manager.close())
            with pytest.raises(ResourceError):
                await asyncio.wait_for(call, 15)
            with pytest.raises(LeaseLost, match="closed"):
                _ = lease.resource
        with pytest.raises(ResourceError, match="closed"):
            async with manager.lease(spec_of(kind="worker"), owner="late"):
                pass

    asyncio.run(engine())


def test_a_start_that_ends_after_close_is_stopped():
    async def main():
        manager, provider, coordinator = pool()
        provider.start_delay = 0.2

        async def chain():
            async with manager.lease(spec_of(), owner="a"):
                raise AssertionError("must not get here")

        task = asyncio.create_task(chain())
        await asyncio.sleep(0.05)
        await manager.close()
        with pytest.raises(ResourceError, match="closed"):
            await task
        assert (provider.live, await held(coordinator)) == ([], 0)

    asyncio.run(main())


@pytest.mark.parametrize("other", [False, True], ids=["the claimed one is its own", "the claimed one makes room"])
def test_what_a_refused_request_has_claimed_is_stopped_before_its_share_is_free(other):
    """Granted on the share of an idle instance, and refused: by then nothing may live on that share."""

    class Draining(InProcessCoordinator):
        async def acquire(self, *arguments, **options):
            ticket = await super().acquire(*arguments, **options)
            if draining:
                manager._refusal = "is being drained"
            return ticket

        async def release(self, ticket, *, idle=False):
            lived.append(len(provider.live))
            return await super().release(ticket, idle=idle)

    async def main():
        nonlocal draining
        async with manager.lease(spec_of(), owner="a"):
            pass
        assert len(provider.live) == 1
        lived.clear()
        draining = True
        with pytest.raises(ResourceError, match="is being drained"):
            async with manager.lease(spec_of(start=2) if other else spec_of(), owner="b"):
                pass
        assert lived == [0]
        assert provider.started == 1
        await manager.close()

    draining, lived = False, []
    provider = Counting()
    manager = ResourceManager(Draining({"object": 1}), {"object": provider})
    asyncio.run(main())


def test_several_loops_share_a_manager():
    manager, provider, coordinator = pool(2)

    async def crowd():
        async def user(number):
            async with manager.lease(spec_of(), owner=str(number)) as lease:
                return await lease.resource.call("add")

        return await asyncio.gather(*(user(i) for i in range(10)))

    async def main():
        return await asyncio.gather(*(asyncio.to_thread(asyncio.run, crowd()) for _ in range(3)))

    assert asyncio.run(main()) == [[1] * 10] * 3
    assert provider.started <= 2
    asyncio.run(manager.close())
    assert asyncio.run(held(coordinator)) == 0


def test_options_travel_as_they_were_given_and_tell_specs_apart():
    options = {"table": {"b": [1, {"c": 2}], "a": 1}, "names": ["x", "y"], "set": {1, 2}}
    spec = ResourceSpec.make("object", "m:f", options=options)
    assert spec.arguments() == options
    assert hash(spec) == hash(ResourceSpec.make("object", "m:f", options=dict(reversed(options.items()))))
    assert ResourceSpec.make("o", options={"a": {"b": 1}}) != ResourceSpec.make("o", options={"a": [["b", 1]]})
