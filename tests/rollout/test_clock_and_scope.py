from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from agentfly_core.rollout.clock import Clock, Deadline
from agentfly_core.rollout.scope import Contained, contained, describe


class Hand:
    """A clock turned by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_clock_counts_unpaused_seconds() -> None:
    hand = Hand()
    clock = Clock(hand)
    start = clock.now()
    hand.at += 2
    clock.pause()
    hand.at += 5
    clock.pause()
    assert (clock.paused, clock.now() - start) == (True, 2.0)
    hand.at += 1
    clock.resume()
    clock.resume()
    hand.at += 3
    assert (clock.paused, clock.now() - start) == (False, 5.0)


def test_a_clock_over_a_clock_stands_still_with_either() -> None:
    hand = Hand()
    engine = Clock(hand)
    chain = Clock(engine.now)
    start = chain.now()
    chain.pause()
    hand.at += 1
    engine.pause()
    hand.at += 10
    chain.resume()
    hand.at += 100
    engine.resume()
    hand.at += 4
    assert chain.now() - start == 4.0


def test_a_deadline_waits_for_its_clock() -> None:
    async def main() -> list[str]:
        hand, log, fired = Hand(), list[str](), asyncio.Event()
        clock = Clock(hand)
        Deadline(clock, 0.01, lambda: (log.append("first"), fired.set()))
        disarmed = Deadline(clock, 0.01, lambda: log.append("never"))
        disarmed.disarm()
        await asyncio.sleep(0.05)
        log.append("still")
        hand.at += 1
        await asyncio.wait_for(fired.wait(), 60)
        await asyncio.sleep(0.05)
        return log

    assert asyncio.run(main()) == ["still", "first"]


async def _value() -> int:
    return 3


async def _raise(error: BaseException) -> None:
    raise error


def test_contained_work_returns_or_raises() -> None:
    assert asyncio.run(contained(_value(), what="work")) == 3
    with pytest.raises(KeyError):
        asyncio.run(contained(_raise(KeyError("x")), what="work"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(2), "SystemExit: 2"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "work was cancelled"),
    ],
)
def test_what_would_end_more_than_the_work_is_contained(error: BaseException, text: str) -> None:
    with pytest.raises(Contained, match=text):
        asyncio.run(contained(_raise(error), what="work"))


def test_contained_work_is_cancelled_with_its_caller_and_on_timeout() -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("ended")

    async def main() -> None:
        with pytest.raises(TimeoutError, match=r"work took longer than 0\.02 s"):
            await contained(work(), what="work", timeout=0.02)
        caller = asyncio.ensure_future(contained(work(), what="work"))
        await asyncio.sleep(0.02)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(main())
    assert log == ["ended", "ended"]


def test_work_that_ignores_its_cancellation_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agentfly_core.rollout.scope.GRACE_SECONDS", 0.05)
    free: list[asyncio.Event] = []

    async def stubborn() -> None:
        free.append(asyncio.Event())
        while not free[0].is_set():
            try:
                await free[0].wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("too late")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await contained(stubborn(), what="tool 'x'", timeout=0.01)
        free[0].set()
        await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert [r.getMessage() for r in caplog.records] == ["tool 'x' ignored its cancellation and is left behind"]


def test_an_error_is_described_with_where_it_was_raised() -> None:
    def inner() -> Any:
        raise ValueError("no")

    try:
        inner()
    except ValueError as error:
        text = describe(error)
    assert text.startswith("ValueError: no (in inner, ")
    assert __file__ in text
    assert describe(KeyError()) == "KeyError"
