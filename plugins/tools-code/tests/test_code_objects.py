"""Objects of the code under test in the hands of its tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agentfly_tools_code.rewards import code_tests

from agentfly_core.resources import ResourceManager
from agentfly_core.types import ChainStatus, Task, ToolContext, Trajectory

BOX = """
class Box:
    def __init__(self): self.v, self.d = 1, {}
    def get(self): return self.v
    def __setitem__(self, key, value): self.d[key] = value
    def __getitem__(self, key): return self.d[key]
    def __delitem__(self, key): del self.d[key]
"""
FORGETFUL = """
class Box:
    v = property(lambda self: 1, lambda self, value: None)
    def get(self): return 1
    def __setitem__(self, key, value): pass
    def __getitem__(self, key): return 1
    def __delitem__(self, key): pass
"""
WRITTEN = {
    "attribute": "b = Box()\nb.v = 5\nassert b.v == 5",
    "attribute, by a method": "b = Box()\nb.v = 5\nassert b.get() == 5",
    "attribute, an object": "a, b = Box(), Box()\na.v = b\nb.v = 7\nassert a.v.v == 7",
    "item": "b = Box()\nb['a'] = 5\nassert b['a'] == 5",
    "item, deleted": "b = Box()\nb['a'] = 1\ndel b['a']\nassert b.d == {}",
}


def score(resources: ResourceManager, code: str, tests: str) -> float:
    chain = Trajectory(
        Task("t", (), {"tests": tests}),
        0,
        "g",
        "train",
        ChainStatus.COMPLETED,
        final_response=f"```python\n{code}\n```",
    )
    done: Any = asyncio.run(code_tests().score(chain, ToolContext(resources=resources)))
    return float(done.score)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_tests_write_into_an_object_reaches_the_code(resources: ResourceManager, name: str) -> None:
    assert score(resources, BOX, WRITTEN[name]) == 1.0
    assert score(resources, FORGETFUL, WRITTEN[name]) == 0.0


def test_an_attribute_that_cannot_be_set_is_an_error_of_the_code(resources: ResourceManager) -> None:
    code = "class Fixed:\n    __slots__ = ()\n"
    assert (
        score(resources, code, "f = Fixed()\ntry:\n    f.v = 1\nexcept AttributeError:\n    pass\nelse:\n    assert 0")
        == 1
    )


@pytest.mark.parametrize(
    ("result", "check"),
    [
        ("range(3, 0, -1)", "list(f()) == [3, 2, 1] and f() == range(3, 0, -1) and f()[0] == 3"),
        ("range(4)", "f() == range(4) and 3 in f()"),
        (
            "{'b': 1, 'a': 2, 'zz': 3, 'y': 4}.keys()",
            "list(f()) == ['b', 'a', 'zz', 'y'] and f() == {'a', 'b', 'y', 'zz'}",
        ),
    ],
)
def test_ranges_and_keys_keep_their_order(resources: ResourceManager, result: str, check: str) -> None:
    assert score(resources, f"def f(): return {result}", f"assert {check}") == 1.0


def test_a_range_comes_to_the_code_as_it_is(resources: ResourceManager) -> None:
    assert score(resources, "def first(xs): return list(xs)[0]", "assert first(range(3, 0, -1)) == 3") == 1.0


def test_a_range_without_end_is_refused(resources: ResourceManager) -> None:
    assert score(resources, "def f(): return range(10**12)", "assert list(f()) == [0]") == 0.0
