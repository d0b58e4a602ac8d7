from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.resources import InProcessCoordinator
from agentfly_core.testing import check_coordinator
from agentfly_core.types import LeaseLost, ResourceError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def granted(tasks: dict[str, asyncio.Task]) -> set[str]:
    return {name for name, task in tasks.items() if task.done()}


def test_it_keeps_the_contract():
    check_coordinator(lambda capacity, total: InProcessCoordinator(capacity, total))


def test_first_come_first_served():
    async def main():
        coordinator = InProcessCoordinator({"box": 2})
        first = await coordinator.acquire("box", "a")
        second = await coordinator.acquire("box", "b")
        order = []

        async def wait(name):
            ticket = await coordinator.acquire("box", name)
            order.append(name)
            return ticket

        tasks = []
        for name in "cde":
            tasks.append(asyncio.create_task(wait(name)))
            await settle()
        await coordinator.release(first)
        await settle()
        assert order == ["c"]
        await coordinator.release(second)
        await settle()
        assert order == ["c", "d"]
        await coordinator.release(await tasks[0])
        await tasks[2]
        assert order == ["c", "d", "e"]

    asyncio.run(main())


def test_a_large_request_is_neither_overtaken_nor_starved():
    async def main():
        coordinator = InProcessCoordinator({"box": 3})
        held = [await coordinator.acquire("box", f"h{i}") for i in range(3)]
        tasks = {"large": asyncio.create_task(coordinator.acquire("box", "large", amount=3))}
        await settle()
        tasks["small"] = asyncio.create_task(coordinator.acquire("box", "small"))
        for expected, ticket in zip([set(), set(), {"large"}], held, strict=True):
            await coordinator.release(ticket)
            await settle()
            assert granted(tasks) == expected
        await coordinator.release(tasks["large"].result())
        await tasks["small"]

    asyncio.run(main())


def test_only_the_total_holds_back_other_kinds():
    async def main():
        coordinator = InProcessCoordinator({"a": 1, "b": 4}, total=4)
        a = await coordinator.acquire("a", "a")
        tasks = {"a2": asyncio.create_task(coordinator.acquire("a", "a2"))}
        await settle()
        b = await coordinator.acquire("b", "b")  # a2 waits for its own kind only: b may pass
        tasks["b3"] = asyncio.create_task(coordinator.acquire("b", "b3", amount=3))
        await settle()
        tasks["c"] = asyncio.create_task(coordinator.acquire("c", "c"))
        await settle()
        assert granted(tasks) == set()  # b3 is short of the total by one, c came later and must not take that one
        await coordinator.release(b)
        await settle()
        assert granted(tasks) == {"b3"}
        await coordinator.release(a)
        await settle()
        assert granted(tasks) == {"a2", "b3"}
        await coordinator.release(tasks["b3"].result())
        await tasks["c"]

    asyncio.run(main())


def test_what_can_never_be_granted_is_refused():
    coordinator = InProcessCoordinator({"box": 2}, total=5)
    with pytest.raises(ResourceError, match=r"3 of box asked for.* capacity of box is 2"):
        asyncio.run(coordinator.acquire("box", "a", amount=3))
    with pytest.raises(ResourceError, match="all kinds together is 5"):
        asyncio.run(coordinator.acquire("other", "a", amount=6))
    with pytest.raises(ValueError, match="amount"):
        asyncio.run(coordinator.acquire("box", "a", amount=0))


def test_expiry_frees_a_ticket_and_wakes_who_waits():
    async def main():
        clock = Clock()
        coordinator = InProcessCoordinator({"box": 1}, clock=clock)
        lost = await coordinator.acquire("box", "crashed", ttl=0.05)
        waiting = asyncio.create_task(coordinator.acquire("box", "next"))
        await settle()
        clock.now = 0.06
        ticket = await asyncio.wait_for(waiting, 30)
        assert ticket.fence > lost.fence
        with pytest.raises(LeaseLost, match="crashed"):
            await coordinator.renew(lost)
        await coordinator.release(lost)  # a stale release takes nothing from the new holder
        assert [t.owner for row in await coordinator.status() for t in row.tickets] == ["next"]

    asyncio.run(main())


def test_a_waiter_learns_of_a_deadline_that_came_to_be_after_it_fell_asleep():
    async def main():
        clock = Clock()
        coordinator = InProcessCoordinator({"box": 1}, clock=clock)
        long = await coordinator.acquire("box", "long", ttl=1000)
        short = asyncio.create_task(coordinator.acquire("box", "short", ttl=0.05))
        await settle()
        waiting = asyncio.create_task(coordinator.acquire("box", "waiting"))
        await settle()
        await coordinator.release(long)
        await short  # and never released
        clock.now = 0.06
        await asyncio.wait_for(waiting, 30)

    asyncio.run(main())


def test_renewal_extends_and_release_is_idempotent():
    async def main():
        clock = Clock()
        coordinator = InProcessCoordinator({"box": 1}, clock=clock)
        ticket = await coordinator.acquire("box", "a", ttl=10)
        clock.now = 9
        ticket = await coordinator.renew(ticket, ttl=10)
        assert ticket.expires_at == 19
        clock.now = 18.9
        assert (await coordinator.status())[1].granted == 1
        await coordinator.release(ticket)
        await coordinator.release(ticket)
        total, box = await coordinator.status()
        assert (total.kind, total.granted, box.granted, box.waiting, box.capacity) == ("*", 0, 0, 0, 1)
        with pytest.raises(LeaseLost):
            await coordinator.renew(ticket)

    asyncio.run(main())


def test_a_wait_that_is_cancelled_in_the_moment_of_its_grant_gives_it_back():
    async def main():
        coordinator = InProcessCoordinator({"box": 1})
        held = await coordinator.acquire("box", "held")
        doomed = asyncio.create_task(coordinator.acquire("box", "doomed"))
        await settle()
        patient = asyncio.create_task(coordinator.acquire("box", "patient"))
        await settle()
        await coordinator.release(held)  # grants to the doomed one, which has not run yet
        assert [t.owner for t in (await coordinator.status())[1].tickets] == ["doomed"]
        doomed.cancel()
        await asyncio.wait_for(patient, 5)
        with pytest.raises(asyncio.CancelledError):
            await doomed
        assert [t.owner for t in (await coordinator.status())[1].tickets] == ["patient"]

    asyncio.run(main())


def test_a_cancelled_large_request_lets_those_behind_it_pass():
    async def main():
        coordinator = InProcessCoordinator({"box": 2})
        await coordinator.acquire("box", "a")
        large = asyncio.create_task(coordinator.acquire("box", "large", amount=2))
        await settle()
        small = asyncio.create_task(coordinator.acquire("box", "small"))
        await settle()
        assert not small.done()
        large.cancel()
        await asyncio.wait_for(small, 5)

    asyncio.run(main())


def test_a_waiter_whose_loop_was_closed_does_not_block_the_queue():
    coordinator = InProcessCoordinator({"box": 1})
    held = asyncio.run(coordinator.acquire("box", "held"))
    loop = asyncio.new_event_loop()
    waiter = coordinator.acquire("box", "gone")
    task = loop.create_task(waiter)
    loop.run_until_complete(settle())
    loop.close()  # without a chance for the task to clean up

    async def main():
        await coordinator.release(held)
        await asyncio.wait_for(coordinator.acquire("box", "next"), 5)

    asyncio.run(main())
    task._log_destroy_pending = False
    with pytest.raises(RuntimeError):
        waiter.throw(RuntimeError())


def test_many_loops_in_many_threads_never_exceed_the_capacity():
    coordinator = InProcessCoordinator({"box": 3})
    lock, full, inside, peak, done = threading.Lock(), threading.Event(), 0, 0, 0

    async def user(number: int) -> None:
        nonlocal inside, peak, done
        ticket = await coordinator.acquire("box", f"u{number}")
        with lock:
            inside += 1
            peak = max(peak, inside)
            if inside == 3:
                full.set()
        while not full.is_set():  # noqa: ASYNC110 - the first stay until the capacity is used up
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.0005)
        with lock:
            inside -= 1
            done += 1
        await coordinator.release(ticket)

    async def crowd() -> None:
        await asyncio.gather(*(user(i) for i in range(40)))

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (done, peak) == (160, 3)
    assert asyncio.run(coordinator.status())[0].granted == 0


KINDS = ("a", "b", "c")
CAPACITY, TOTAL = {"a": 2, "b": 4}, 5
OPERATIONS = st.one_of(
    st.tuples(st.just("acquire"), st.sampled_from(KINDS), st.integers(1, 2), st.sampled_from([3.0, 8.0, 20.0])),
    st.tuples(st.sampled_from(["release", "cancel", "renew"]), st.integers(0, 30)),
    st.tuples(st.just("pass"), st.sampled_from([1.0, 4.0])),
)


class Model:
    """The rules again, as plainly as can be: scan everyone in order of arrival."""

    def __init__(self) -> None:
        self.now, self.queue, self.held = 0.0, [], {}

    def update(self) -> None:
        self.held = {n: t for n, t in self.held.items() if t["expires"] > self.now}
        blocked, total_blocked = set(), False
        for request in list(self.queue):
            kind, amount = request["kind"], request["amount"]
            used = sum(t["amount"] for t in self.held.values() if t["kind"] == kind)
            if kind in blocked or total_blocked:
                continue
            if used + amount > CAPACITY.get(kind, 99):
                blocked.add(kind)
            elif sum(t["amount"] for t in self.held.values()) + amount > TOTAL:
                total_blocked = True
            else:
                self.queue.remove(request)
                self.held[request["name"]] = {**request, "expires": self.now + request["ttl"]}


@settings(max_examples=120, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_any_sequence_of_operations_agrees_with_the_model(operations):
    async def main():
        clock, model = Clock(), Model()
        coordinator = InProcessCoordinator(CAPACITY, TOTAL, clock=clock)
        tasks: dict[str, asyncio.Task] = {}
        for number, (operation, *arguments) in enumerate(operations):
            if operation == "acquire":
                kind, amount, ttl = arguments
                name = str(number)
                model.queue.append({"name": name, "kind": kind, "amount": amount, "ttl": ttl})
                tasks[name] = asyncio.create_task(coordinator.acquire(kind, name, amount=amount, ttl=ttl))
                await settle()
            elif operation == "pass":
                clock.now = model.now = clock.now + arguments[0]
                await coordinator.status()
            elif operation == "cancel" and model.queue:
                request = model.queue.pop(arguments[0] % len(model.queue))
                tasks[request["name"]].cancel()
            elif operation in ("release", "renew") and model.held:
                name = sorted(model.held)[arguments[0] % len(model.held)]
                ticket = await tasks[name]
                if operation == "release":
                    del model.held[name]
                    await coordinator.release(ticket)
                else:
                    model.held[name]["expires"] = clock.now + 6
                    await coordinator.renew(ticket, ttl=6)
            model.update()
            await settle()
            rows = await coordinator.status()
            assert {t.owner for row in rows for t in row.tickets} == set(model.held)
            assert all(row.capacity is None or row.granted <= row.capacity for row in rows)
            assert rows[0].waiting == sum(r["amount"] for r in model.queue)
            assert all(tasks[name].done() for name in model.held)
        for _ in range(len(operations)):  # whoever still waits gets its turn once the others let go
            for name in list(model.held):
                await coordinator.release(await tasks[name])
            model.held.clear()
            model.update()
        await asyncio.wait_for(asyncio.gather(*tasks.values(), return_exceptions=True), 5)

    asyncio.run(main())


def test_a_long_queue_is_served_in_reasonable_time():
    async def main():
        coordinator = InProcessCoordinator({"box": 1})

        async def user(number):
            await coordinator.release(await coordinator.acquire("box", str(number)))

        await asyncio.gather(*(user(i) for i in range(300)))

    began = time.process_time()
    asyncio.run(main())
    assert time.process_time() - began < 10
