"""Submitting, pausing, cancelling, closing: from any thread, several engines at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import threading
import time
import weakref
from typing import Any

import pytest

from agentfly_core.rollout import Engine
from agentfly_core.rollout.sampling import on_loop_of
from agentfly_core.tools import tool
from agentfly_core.types import ChainStatus, Generation, RolloutEngine, Task, ToolContext, UsageError

C = ChainStatus


@tool
def fine() -> int:
    """Works."""
    return 1


@pytest.mark.parametrize("method", ["submit", "run", "pause", "resume", "close"])
def test_the_engine_has_the_contracts_signatures(method: str) -> None:
    """The same names, kinds and defaults."""

    def shape(owner: type) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(getattr(owner, method)).parameters.values()]

    assert shape(Engine) == shape(RolloutEngine)


def test_run_names_groups_and_numbers_chains(kit: Any) -> None:
    with kit.engine(kit.scripted("hi")) as engine:
        found = list(engine.run([kit.task(0), kit.task(1), kit.task(0)], chains=2, label="step4", split="eval"))
        plain = list(engine.run([kit.task(0)]))
    keys = sorted((t.group, t.chain_index) for t in found)
    assert keys == [*(("step4/t0", n) for n in range(4)), ("step4/t1", 0), ("step4/t1", 1)]
    assert {t.split for t in found} == {"eval"}
    assert [(t.group, t.split) for t in plain] == [("t0", "train")]


def test_trajectories_come_as_they_finish(kit: Any) -> None:
    backend = kit.scripted(lambda r: kit.backend_turn("hi", delay=1.5 if r.chain_key[0] == "t0" else 0.0))
    with kit.engine(backend) as engine:
        assert [t.task.id for t in engine.run([kit.task(0), kit.task(1)])] == ["t1", "t0"]


def test_concurrency_is_bounded_and_chains_start_in_order(kit: Any) -> None:
    started: list[int] = []

    def notify(hook: str, **arguments: Any) -> None:
        if hook == "rollout_started":
            started.append(arguments["chain_index"])

    backend = kit.scripted(lambda r: kit.backend_turn("hi", delay=0.002))
    with kit.engine(backend, max_concurrency=5, notify=notify) as engine:
        list(engine.run([kit.task()], chains=40))
    assert started == list(range(40))
    assert backend.peak == 5


def test_submitting_from_several_threads(kit: Any) -> None:
    with kit.engine(kit.scripted("!fine {}", "bye"), tools=[fine], max_concurrency=16) as engine:

        def submit(thread: int) -> list[Any]:
            futures = [engine.submit(kit.task(thread), n, f"g{thread}") for n in range(25)]
            return [f.result(60) for f in futures]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = [t for batch in pool.map(submit, range(8)) for t in batch]
    assert sorted((t.group, t.chain_index) for t in found) == sorted((f"g{g}", n) for g in range(8) for n in range(25))
    assert all(t.scored for t in found)


def test_two_engines_in_one_process(kit: Any) -> None:
    with kit.engine(kit.scripted("a")) as one, kit.engine(kit.scripted("b")) as two:
        both = zip(one.run([kit.task()], chains=9), two.run([kit.task()], chains=9), strict=True)
        assert [(x.response, y.response) for x, y in both] == [("a", "b")] * 9
        one.close()
        assert [t.response for t in two.run([kit.task()])] == ["b"]


def test_a_host_awaits_futures_on_its_own_loop(kit: Any) -> None:
    async def host(engine: Any) -> list[str]:
        futures = [asyncio.wrap_future(engine.submit(kit.task(), n, "g")) for n in range(3)]
        return [(await f).response for f in futures]

    with kit.engine(kit.scripted("hi")) as engine:
        assert asyncio.run(host(engine)) == ["hi"] * 3


class HostBackend:
    """Answers only on the loop of its host."""

    weight_version = 0
    max_model_len = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.cancelled = 0

    async def generate(self, request: Any) -> Generation:
        assert asyncio.get_running_loop() is self.loop
        try:
            await asyncio.sleep(10 if request.chain_key[1] == 1 else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Generation((ord("h") + 8, 0), (-1.0, -1.0), "stop")

    async def generate_wave(self, requests: Any) -> list[Generation]:
        return [await self.generate(request) for request in requests]

    async def update_weights(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_backend_on_another_loop(kit: Any, deterministic: bool) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        backend = HostBackend(loop)
        with kit.engine(backend, deterministic=deterministic) as engine:
            assert engine.submit(kit.task(), 0, "g").result(30).response == "h"
            if not deterministic:
                hanging = engine.submit(kit.task(), 1, "g")
                time.sleep(0.05)
                hanging.cancel()
                kit.wait_until(lambda: backend.cancelled == 1)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_backend_with_a_strange_loop_is_refused() -> None:
    class Strange:
        loop = "uvloop"

    with pytest.raises(UsageError, match=r"Strange.loop must be an event loop"):
        on_loop_of(Strange(), None)  # type: ignore[arg-type]


def test_cancelling_ends_generation_tools_and_waiting_chains(kit: Any) -> None:
    began, ended = threading.Event(), list[str]()

    @tool(timeout=60)
    async def wait() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tool")
        return ""

    def sample(request: Any) -> Any:
        return "!wait {}" if request.chain_key[1] == 0 else kit.backend_turn("late", delay=60)

    backend = kit.scripted(sample)
    with kit.engine(backend, tools=[wait], max_concurrency=2) as engine:
        futures = [engine.submit(kit.task(), n, "g") for n in range(4)]
        kit.wait_until(lambda: len(backend.requests) == 2 and began.is_set())
        # The waiting chains first: a cancelled one that plays makes room for the next.
        assert all(f.cancel() for f in reversed(futures))
        # Waiters are told once everything is released.
        done, pending = concurrent.futures.wait(futures, timeout=20)
        assert (len(done), len(pending)) == (4, 0)
        assert ended == ["tool"]
        kit.wait_until(lambda: backend.running == 0)
        assert len(backend.requests) == 2
        with pytest.raises(concurrent.futures.CancelledError):
            futures[0].result()
        assert not engine._open


def test_a_chain_that_runs_out_of_time(kit: Any) -> None:
    backend = kit.scripted("!fine {}", kit.backend_turn("late", delay=60))
    trajectory = kit.play(backend, tools=[fine], chain_timeout=0.3)
    assert (trajectory.status, trajectory.scored, trajectory.reward) == (C.TIMEOUT, False, 0.0)
    assert trajectory.error == "the chain took longer than 0.3 s"
    assert len(trajectory.turns) == 1
    assert trajectory.segments[0].token_ids[-1] == kit.END
    assert backend.running == 0


def test_time_in_which_the_engine_was_paused_does_not_count(kit: Any) -> None:
    with kit.engine(kit.scripted("!fine {}", "bye"), tools=[fine], chain_timeout=2.0) as engine:
        engine.pause()
        engine.pause()
        futures = [engine.submit(kit.task(), n, "g") for n in range(3)]
        time.sleep(2.2)
        assert not any(f.done() for f in futures)
        engine.resume()
        engine.resume()
        assert [f.result(30).status for f in futures] == [C.COMPLETED] * 3


def test_a_pause_between_turns_holds_the_next_generation(kit: Any) -> None:
    called, go = threading.Event(), threading.Event()

    @tool
    def gate() -> str:
        """Wait for the test."""
        called.set()
        go.wait(20)
        return ""

    backend = kit.scripted("!gate {}", "bye")
    with kit.engine(backend, tools=[gate]) as engine:
        future = engine.submit(kit.task(), 0, "g")
        assert called.wait(20)
        engine.pause()
        go.set()
        time.sleep(0.2)
        assert len(backend.requests) == 1
        engine.resume()
        assert future.result(30).status is C.COMPLETED


def test_a_paused_chain_still_times_out_afterwards(kit: Any) -> None:
    with kit.engine(kit.scripted(kit.backend_turn("late", delay=60)), chain_timeout=0.2) as engine:
        future = engine.submit(kit.task(), 0, "g")
        engine.pause()
        time.sleep(0.4)
        assert not future.done()
        engine.resume()
        assert future.result(30).status is C.TIMEOUT


def test_closing_aborts_what_runs_and_what_waits(kit: Any) -> None:
    backend = kit.scripted("!fine {}", kit.backend_turn("late", delay=60))
    engine = kit.engine(backend, tools=[fine], max_concurrency=2)
    futures = [engine.submit(kit.task(), n, "g") for n in range(5)]
    kit.wait_until(lambda: len(backend.requests) == 4)
    engine.close()
    engine.close()
    found = [f.result(0) for f in futures]
    assert [(t.status, t.scored, t.error) for t in found] == [(C.ABORTED, False, "the engine was closed")] * 5
    assert [len(t.turns) for t in found] == [1, 1, 0, 0, 0]
    with pytest.raises(UsageError, match="the engine is closed"):
        engine.submit(kit.task(), 0, "g")
    engine.pause()
    engine.resume()


def test_closing_from_the_engines_own_loop_is_refused(kit: Any) -> None:
    errors: list[Exception] = []

    def notify(hook: str, **arguments: Any) -> None:
        try:
            engine.close()
        except UsageError as error:
            errors.append(error)

    with kit.engine(kit.scripted("hi"), notify=notify) as engine:
        assert engine.submit(kit.task(), 0, "g").result(30).scored
    assert "from its own loop" in str(errors[0])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_leaving_the_iterator_cancels_what_is_left(kit: Any, error: type[BaseException]) -> None:
    backend = kit.scripted(lambda r: kit.backend_turn("x", delay=0 if r.chain_key[1] == 0 else 60))
    with kit.engine(backend) as engine:

        def consume() -> None:
            for _ in engine.run([kit.task()], chains=5):
                raise error

        with pytest.raises(error):
            consume()
        gc.collect()
        kit.wait_until(lambda: not engine._open)
        assert backend.running == 0
        assert [t.scored for t in engine.run([kit.task()])] == [True]


def test_a_loop_that_dies_fails_its_futures_and_says_so(kit: Any) -> None:
    engine = kit.engine(kit.scripted(kit.backend_turn("late", delay=60)), max_concurrency=1)
    futures = [engine.submit(kit.task(), n, "g") for n in range(3)]

    def sabotage() -> None:
        raise AssertionError("a bug")

    engine._thread._run = sabotage
    engine._thread.soon(engine._thread.loop.stop)
    found = [f.result(30) for f in futures]
    assert {t.status for t in found} == {C.ABORTED}
    assert {t.error for t in found} == {"the engine's event loop died (AssertionError: a bug)"}
    with pytest.raises(UsageError, match="event loop died"):
        engine.submit(kit.task(), 0, "g")
    engine.close()


def test_a_long_lived_engine_keeps_nothing_of_finished_chains(kit: Any) -> None:
    class Marked(dict[str, Any]):
        """A weakly referable mapping."""

    states: list[weakref.ref[Any]] = []

    @tool
    async def mark(context: ToolContext) -> str:
        """Leave something in the chain's state."""
        marked = Marked()
        context.state["marked"] = marked
        states.append(weakref.ref(marked))
        return ""

    backend = kit.scripted(lambda r: "bye" if kit.turn_number(r) else "!mark {}")
    with kit.engine(backend, tools=[mark], max_concurrency=8) as engine:
        assert sum(1 for _ in engine.run([kit.task(n) for n in range(50)], chains=4)) == 200
        backend.requests.clear()
        kit.wait_until(lambda: not engine._open)
        gc.collect()
        assert len(states) == 200
        assert sum(ref() is not None for ref in states) == 0
        assert (len(engine._scheduler._running), len(engine._scheduler._waiting)) == (0, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_turns": 0}, "max_turns must be greater than 0, got 0"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"chain_timeout": float("nan")}, "chain_timeout"),
        ({"tools": [fine, fine]}, "two tools are named 'fine'"),
        ({"environment": object()}, "needs `resources`"),
    ],
)
def test_what_does_not_fit_together_is_refused(kit: Any, options: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        kit.engine(kit.scripted("hi"), **options)
    with kit.engine(kit.scripted("hi")) as engine, pytest.raises(UsageError, match="chains"):
        list(engine.run([Task("t")], chains=0))
