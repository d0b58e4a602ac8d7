"""Code under test that tries to get out of its tests by the way in which it answers them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agentfly_tools_code.rewards import code_tests

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
