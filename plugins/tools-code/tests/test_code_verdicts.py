"""Code under test that tries to get out of its tests by the way in which it answers them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from agentfly_tools_code.rewards import code_tests
from agentfly_tools_code.waiting import bounded

from agentfly_core.resources import ResourceManager
from agentfly_core.types import ChainStatus, Task, ToolContext, Trajectory


async def score(resources: ResourceManager, code: str, tests: Any, entry: str | None = None, **options: Any) -> float:
    fields = {"tests": tests, "entry_point": entry}
    response = f"```python\n{code}\n```"
    chain = Trajectory(Task("t", (), fields), 0, "g", "train", ChainStatus.COMPLETED, final_response=response)
    return (await code_tests(**options).score(chain, ToolContext(resources=resources))).score


ITERATING = {
    "zip": ("def check(f):\n    for got, want in zip(map(f, [1, 2]), [2, 3]): assert got == want", "f"),
    "all": ("assert all(map(f, [4, 6, 8]))", None),
    "not any": ("assert not any(map(f, [4, 6, 8]))", None),
    "attribute": ("assert all(map(lambda n: C().p == n, [1, 2]))", None),
    "length": ("assert all(map(len, [C(), C()]))", None),
    "item": ("assert all(map(lambda c: c[0] == 1, [C(), C()]))", None),
    "iteration": ("assert all(map(list, [C(), C()]))", None),
}


@pytest.mark.parametrize("error", ["StopIteration", "Own", "StopAsyncIteration", "GeneratorExit"])
@pytest.mark.parametrize("name", ITERATING)
def test_no_exception_of_a_call_ends_an_iteration_of_the_tests(
    resources: ResourceManager, name: str, error: str
) -> None:
    code = (
        f"class Own(StopIteration): pass\ndef f(x=0, y=0): raise {error}\n"
        "class C:\n    __len__ = __getitem__ = __iter__ = f\n    p = property(f)"
    )
    tests, entry = ITERATING[name]
    assert asyncio.run(score(resources, code, tests, entry)) == 0.0


def test_an_iterator_ends_when_it_says_so(resources: ResourceManager) -> None:
    code = (
        "class Count:\n    n = 0\n    def __iter__(self): return self\n"
        "    def __next__(self):\n        self.n += 1\n"
        "        if self.n < 4: return self.n\n        raise StopIteration"
    )
    tests = "assert list(Count()) == [1, 2, 3]\nassert [a for a, _ in zip(Count(), range(9))] == [1, 2, 3]"
    assert asyncio.run(score(resources, code, tests)) == 1.0


def test_a_generator_without_end_is_cut_off_every_time(
    resources: ResourceManager, caplog: pytest.LogCaptureFixture
) -> None:
    code = "def f(x):\n    while True: yield 1"

    async def main() -> list[float]:
        tests = ["assert list(f(1)) == [1]"]
        runs = [await score(resources, code, tests, timeout=2.0) for _ in range(3)]
        gc.collect()
        return runs

    assert asyncio.run(asyncio.wait_for(main(), 120)) == [0.0] * 3
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_that_comes_with_the_result_is_not_lost(turns: int) -> None:
    async def main() -> None:
        result = asyncio.get_running_loop().create_future()

        async def work() -> int:
            return int(await result)

        task = asyncio.create_task(bounded(bounded(work(), 60), 60))
        for _ in range(5):
            await asyncio.sleep(0)
        result.set_result(7)
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task == 7

    asyncio.run(main())


def test_what_takes_too_long_is_cancelled_and_its_error_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
            raise ValueError("late")

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await bounded(work(), 0.01)
        assert ended == ["ended"]
        gc.collect()

    asyncio.run(main())
    assert "never retrieved" not in caplog.text


def test_a_module_that_the_tests_forgot_to_import_is_the_real_one(resources: ResourceManager) -> None:
    tests = ["assert math.isclose(f(2.0), 1.5)"]
    forged = "class math:\n    def isclose(*a): return True\ndef f(x): return 0.0"
    assert asyncio.run(score(resources, forged, tests)) == 0.0
    assert asyncio.run(score(resources, "import math\ndef f(x): return 1.5", tests)) == 1.0


def test_a_function_with_the_name_of_a_module_is_that_of_the_code(resources: ResourceManager) -> None:
    assert asyncio.run(score(resources, "def select(x): return x[0]", ["assert select([3]) == 3"])) == 1.0
