"""Asynchronous code of others on a loop of its own."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading

import pytest

from agentfly_core import call_loop
from agentfly_core.call_loop import on_call_loop


async def the_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_everything_runs_on_one_loop_that_is_nobody_elses():
    async def main():
        mine = asyncio.get_running_loop()
        loops = {await on_call_loop(the_loop) for _ in range(5)}
        assert mine not in loops
        return loops

    loops = asyncio.run(main()) | asyncio.run(main())
    assert len(loops) == 1


def test_work_on_the_call_loop_calls_on_without_waiting_for_itself():
    async def outer():
        return asyncio.get_running_loop(), await on_call_loop(the_loop)

    outside, inside = asyncio.run(on_call_loop(outer))
    assert outside is inside


def test_values_errors_and_context_variables_cross():
    variable = contextvars.ContextVar("variable", default="unset")

    async def main():
        variable.set("mine")

        async def reads():
            return variable.get()

        async def fails(error: BaseException):
            raise error

        assert await on_call_loop(reads) == "mine"
        for error in (KeyError("x"), SystemExit(3), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                await on_call_loop(lambda error=error: fails(error))
        with pytest.raises(asyncio.CancelledError):
            await on_call_loop(lambda: fails(asyncio.CancelledError()))
        assert await on_call_loop(reads) == "mine"  # the loop outlived them all

    asyncio.run(main())


def test_cancelling_the_wait_cancels_the_work_and_waits_for_its_clean_up():
    begun, cleaned = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    async def main():
        task = asyncio.ensure_future(on_call_loop(work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("noticed_by", ["a later call", "a cancellation"])
def test_a_blocked_loop_is_replaced_and_what_had_not_begun_moves_over(noticed_by, monkeypatch, caplog):
    monkeypatch.setattr(call_loop, "STALL_SECONDS", 1.0 if noticed_by == "a later call" else 1000.0)
    monkeypatch.setattr(call_loop, "CANCEL_SECONDS", 0.1)
    blocking, free = threading.Event(), threading.Event()

    async def blocks():
        blocking.set()
        free.wait()
        return "unblocked"

    async def main():
        old = await on_call_loop(the_loop)
        blocker = asyncio.ensure_future(on_call_loop(blocks))
        await asyncio.to_thread(blocking.wait)
        waiting = [asyncio.ensure_future(on_call_loop(the_loop)) for _ in range(3)]
        await asyncio.sleep(0)
        if noticed_by == "a cancellation":
            blocker.cancel()
        loops = {await asyncio.wait_for(w, 60) for w in waiting} | {await on_call_loop(the_loop)}
        assert len(loops) == 1
        assert old not in loops
        free.set()
        if noticed_by == "a later call":
            assert await blocker == "unblocked"  # what is left behind still ends
        else:
            with pytest.raises(asyncio.CancelledError):
                await blocker
        assert await on_call_loop(the_loop) in loops

    asyncio.run(main())
    assert [r.message for r in caplog.records if "blocks its event loop" in r.message] != []


def test_a_result_that_nobody_waits_for_any_more_is_no_error(monkeypatch, caplog):
    monkeypatch.setattr(call_loop, "CANCEL_SECONDS", 0.05)
    blocking, free, ended = threading.Event(), threading.Event(), threading.Event()

    async def blocks_then_fails():
        blocking.set()
        free.wait()
        asyncio.get_running_loop().call_soon(ended.set)
        raise ValueError("too late")

    async def main():
        task = asyncio.ensure_future(on_call_loop(blocks_then_fails))
        await asyncio.to_thread(blocking.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    free.set()  # the waiter's loop is closed by now
    assert ended.wait(60)
    gc.collect()
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


def test_many_at_once_from_many_loops():
    def caller(number: int, results: list) -> None:
        async def echo(value):
            await asyncio.sleep(0)
            return value

        async def main():
            return await asyncio.gather(*(on_call_loop(lambda i=i: echo((number, i))) for i in range(50)))

        results.append((number, asyncio.run(main())))

    results: list = []
    threads = [threading.Thread(target=caller, args=(n, results)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(n, [(n, i) for i in range(50)]) for n in range(4)]


def test_blocking_does_not_hold_up_the_caller():
    async def blocks():
        threading.Event().wait(0.5)

    async def main():
        task, ticks = asyncio.ensure_future(on_call_loop(blocks)), 0
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 1
