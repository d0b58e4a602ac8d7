"""What becomes of a call, whatever the tool does."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import math
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

from agentfly_core.calls import CallFailed, Limit, invoke
from agentfly_core.tools import SchemaTool, answer, tool
from agentfly_core.types import LeaseLost, ResourceError, ToolContext, ToolOutcome, ToolResult, ToolStatus


def outcome_of(function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> ToolOutcome:
    return asyncio.run(tool(name="t", **options)(function).call(arguments or {}, ToolContext()))


@dataclasses.dataclass
class Row:
    n: int
    day: datetime.date


class Array:
    """Like a numpy array or scalar."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (None, "null"),
        (True, "true"),
        ("text", "text"),
        ("", ""),
        ("é\U0001f600", "é\U0001f600"),
        ("a\ud800b", "a\ufffdb"),
        ({"a": [1, "é"]}, '{"a": [1, "é"]}'),
        ((1, 2), "[1, 2]"),
        (Row(1, datetime.date(2024, 2, 29)), '{"n": 1, "day": "2024-02-29"}'),
        (Array([1.5, 2]), "[1.5, 2]"),
        ({"mean": Array(0.5)}, '{"mean": 0.5}'),
        (float("inf"), "Infinity"),
        ([], "[]"),
    ],
)
def test_whatever_has_a_json_form_is_shown(value, shown):
    outcome = outcome_of(lambda: value)
    assert (outcome.status, outcome.content) == (ToolStatus.OK, shown)


def test_tool_results_keep_what_they_say():
    outcome = outcome_of(lambda: ToolResult({"a": 1}, final=True, metrics={"pages": 3}))
    assert (outcome.content, outcome.final, outcome.metrics) == ('{"a": 1}', True, {"pages": 3.0})
    assert outcome_of(lambda: ToolResult("no luck", error=True)).status is ToolStatus.FAILED
    assert outcome_of(lambda: ToolResult("x", metrics={"pages": "three"})).status is ToolStatus.FAILED


def test_parts_are_kept():
    parts = [{"type": "text", "text": "see "}, {"type": "image", "image": b"png"}]
    assert outcome_of(lambda: ToolResult(parts)).content == parts
    rows = [{"type": "text", "text": "x", "score": 1}]
    assert outcome_of(lambda: rows).content == '[{"type": "text", "text": "x", "score": 1}]'


def test_images_become_parts():
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.new("RGB", (2, 2))
    assert outcome_of(lambda: image).content == [{"type": "image", "image": image}]
    assert outcome_of(lambda: ["left", image]).content == [
        {"type": "text", "text": "left"},
        {"type": "image", "image": image},
    ]


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def numbers():
    while True:
        yield 1


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raising(error: BaseException):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising(KeyError("x")), "Error: KeyError: 'x'"),
        (raising(ValueError()), "Error: ValueError"),
        (raising(SystemExit(3)), "Error: SystemExit: 3"),
        (raising(KeyboardInterrupt()), "Error: KeyboardInterrupt"),
        (raising(asyncio.CancelledError()), "Error: CancelledError"),
        (raising(StopIteration("s")), "Error: StopIteration: s"),
        (raising(TimeoutError("own")), "Error: TimeoutError: own"),
        (raising(Unprintable()), "Error: Unprintable: "),
        (lambda: object(), "no JSON form"),
        (lambda: numbers(), "no JSON form"),
        (lambda: cyclic(), "no JSON form"),
        (lambda: {(1, 2): 3}, "no JSON form"),
        (lambda: 10**10_000, "no JSON form"),
        (lambda: b"\xff", "no JSON form"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_errors_and_junk_are_failures_with_their_name(function, said, asynchronous):
    async def wrapped():
        return function()

    outcome = outcome_of(wrapped if asynchronous else function)
    if asynchronous and "StopIteration" in said:
        said = "StopIteration"  # inside a coroutine Python turns it into a RuntimeError
    assert outcome.status is ToolStatus.FAILED
    assert said in outcome.content


@pytest.mark.parametrize("error", [ResourceError("no engine"), LeaseLost("it ran out")])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resource_that_cannot_be_had_is_no_outcome(error, asynchronous):
    def plain():
        raise error

    async def waiting():
        raise error

    with pytest.raises(ResourceError) as raised:
        outcome_of(waiting if asynchronous else plain)
    assert raised.value is error


def test_a_huge_output_loses_its_middle():
    outcome = outcome_of(lambda: "a" * 5_000_000 + "b" * 5_000_000)
    assert outcome.status is ToolStatus.OK
    assert len(outcome.content) <= 16_000
    assert outcome.content.startswith("aaaa")
    assert outcome.content.endswith("bbbb")
    left_out = 10_000_000 - outcome.content.count("a", 0, 7_000) - outcome.content.count("b", 7_990)
    assert "characters left out" in outcome.content
    assert left_out > 9_980_000
    short = outcome_of(lambda: list(range(1000)), max_output_chars=100).content
    assert len(short) <= 100
    assert short.startswith("[0, 1,")
    assert short.endswith("999]")
    assert len(outcome_of(raising(ValueError("x" * 10**6))).content) <= 16_000


def test_a_missing_or_wrong_argument_never_reaches_the_function():
    called = []
    outcome = outcome_of(lambda n: called.append(n))
    assert outcome.status is ToolStatus.INVALID_ARGUMENTS
    assert outcome.content == "Invalid arguments for t: n: required, but missing"
    assert called == []


def test_a_hanging_thread_ends_the_wait_and_harms_no_other_call():
    release = threading.Event()

    @tool(timeout=0.05, max_concurrency=1)
    def hang(forever: bool):
        if forever:
            release.wait(20)
        return "done"

    async def main():
        stuck = await asyncio.gather(*(hang.call({"forever": True}, ToolContext()) for _ in range(5)))
        return stuck, await hang.call({"forever": False}, ToolContext())

    started = time.monotonic()
    stuck, after = asyncio.run(main())
    assert time.monotonic() - started < 10
    release.set()
    assert [o.status for o in stuck] == [ToolStatus.TIMED_OUT] * 5
    assert stuck[0].content == "Error: hang timed out: it did not finish within 0.05 s."
    assert after.content == "done"


def test_an_asynchronous_tool_is_cancelled_at_its_timeout_and_may_clean_up():
    events = []

    async def slow():
        try:
            await asyncio.sleep(20)
        finally:
            events.append("cleaned up")

    assert outcome_of(slow, timeout=0.05).status is ToolStatus.TIMED_OUT
    assert events == ["cleaned up"]


def test_an_asynchronous_tool_that_ignores_its_cancellation_is_left_behind():
    async def stubborn():
        for _ in range(50):
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue

    async def main():
        started = time.monotonic()
        outcome = await tool(timeout=0.05)(stubborn).call({}, ToolContext())
        waited = time.monotonic() - started
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
        return outcome, waited

    outcome, waited = asyncio.run(main())
    assert outcome.status is ToolStatus.TIMED_OUT
    assert waited < 8


def test_the_contexts_timeout_holds_where_the_tool_sets_none():
    async def slow():
        await asyncio.sleep(20)

    outcome = asyncio.run(tool(slow).call({}, ToolContext(timeout=0.05)))
    assert (outcome.status, outcome.content) == (
        ToolStatus.TIMED_OUT,
        "Error: slow timed out: it did not finish within 0.05 s.",
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_cancellation_propagates_and_gives_the_place_back(asynchronous):
    release = threading.Event()

    async def wait_async(long: bool):
        if long:
            await asyncio.sleep(20)
        return "ok"

    def wait_sync(long: bool):
        if long:
            release.wait(20)
        return "ok"

    made = tool(max_concurrency=1)(wait_async if asynchronous else wait_sync)

    async def main():
        running = asyncio.ensure_future(made.call({"long": True}, ToolContext()))
        queued = asyncio.ensure_future(made.call({"long": True}, ToolContext()))
        await asyncio.sleep(0.05)
        for task in (queued, running):
            task.cancel()
        ended = await asyncio.gather(running, queued, return_exceptions=True)
        return ended, await made.call({"long": False}, ToolContext())

    ended, after = asyncio.run(main())
    release.set()
    assert [type(e) for e in ended] == [asyncio.CancelledError] * 2
    assert after.content == "ok"


def test_sync_tools_run_beside_each_other_and_never_block_the_loop():
    barrier = threading.Barrier(8, timeout=20)  # passes only if all eight run at once

    @tool
    def meet() -> str:
        barrier.wait()
        return threading.current_thread().name

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.ensure_future(tick())
        outcomes = await asyncio.gather(*(meet.call({}, ToolContext()) for _ in range(8)))
        ticker.cancel()
        return outcomes, ticks

    outcomes, ticks = asyncio.run(main())
    assert [o.status for o in outcomes] == [ToolStatus.OK] * 8
    assert ticks > 1


def test_max_concurrency_holds_across_event_loops():
    lock = threading.Lock()
    running, peak = 0, 0

    @tool(max_concurrency=2)
    def busy() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    async def many():
        return await asyncio.gather(*(busy.call({}, ToolContext()) for _ in range(10)))

    results = []
    threads = [threading.Thread(target=lambda: results.extend(asyncio.run(many()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [o.status for o in results] == [ToolStatus.OK] * 30
    assert peak == 2


def test_a_place_granted_to_a_waiter_that_is_just_being_cancelled_is_not_lost():
    async def main():
        limit = Limit(1)

        async def hold():
            async with limit:
                pass

        for _ in range(50):
            await limit.__aenter__()
            waiter = asyncio.ensure_future(hold())
            await asyncio.sleep(0)
            await limit.__aexit__()
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            await asyncio.wait_for(hold(), 5)

    asyncio.run(main())


def test_context_variables_reach_the_thread():
    variable = contextvars.ContextVar("variable", default="unset")

    async def main():
        variable.set("set")
        return await tool(name="t")(lambda: variable.get()).call({}, ToolContext())

    assert asyncio.run(main()).content == "set"


def test_a_sync_wrapper_of_an_async_function_is_awaited():
    async def work(n: int) -> int:
        return n + 1

    assert outcome_of(lambda: work(1)).content == "2"


def test_a_hung_tool_does_not_keep_the_interpreter_alive():
    script = textwrap.dedent(
        """
        import asyncio, threading
        from agentfly_core import tool, ToolContext

        @tool(timeout=0.05)
        def hang():
            threading.Event().wait()

        print(asyncio.run(hang.call({}, ToolContext())).status.value)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "timed_out"), done.stderr


def test_state_is_shared_by_the_calls_of_one_chain():
    @tool
    def count(ctx: ToolContext) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"]

    context = ToolContext()
    assert [asyncio.run(count.call({}, context)).content for _ in range(3)] == ["1", "2", "3"]
    assert asyncio.run(count.call({}, ToolContext())).content == "1"


def test_schema_tools_may_be_asynchronous():
    async def remote(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"{context.task_id}:{arguments['a']}"

    made = SchemaTool(remote, name="remote", description="", parameters={"type": "object"})
    assert asyncio.run(made.call({"a": 1}, ToolContext(task_id="t"))).content == "t:1"


def test_the_decorated_function_is_still_a_function():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == 3
    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert math.isclose(add(0.5, b=0.25), 0.75)


def test_answer_ends_the_chain():
    outcome = asyncio.run(answer.call({"answer": 42}, ToolContext()))
    assert (outcome.status, outcome.content, outcome.final) == (ToolStatus.OK, "42", True)


def test_invoke_keeps_the_original_exception():
    error = KeyError("x")
    with pytest.raises(CallFailed) as caught:
        asyncio.run(invoke(raising(error), timeout=5))
    assert caught.value.error is error


def test_star_imports_work():
    names: dict[str, Any] = {}
    exec("from agentfly_core.tools import *\nfrom agentfly_core.rewards import *\nfrom agentfly_core import *", names)
    assert callable(names["tool"])
    assert names["calculator"].name == "calculator"
