"""Tests are found and run as unittest and pytest would, or not at all and with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agentfly_tools_code.rewards import code_tests

from agentfly_core.calls import CallFailed
from agentfly_core.resources import ResourceManager
from agentfly_core.types import ChainStatus, RewardResult, Task, ToolContext, Trajectory

RIGHT = "def add(a, b): return a + b"
WRONG = "def add(a, b): return 3"
ASYNC = "async def add(a, b): return {}"
CASE = "import unittest\nclass T(unittest.TestCase):\n    def test_0(self): self.assertEqual(add(1, 2), 3)\n"
AWAITED = "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"


def score(resources: ResourceManager, code: str, tests: Any, entry: str | None = None, **options: Any) -> RewardResult:
    fields = {"tests": tests, "entry_point": entry}
    response = f"```python\n{code}\n```"
    chain = Trajectory(Task("t", (), fields), 0, "g", "train", ChainStatus.COMPLETED, final_response=response)
    return asyncio.run(code_tests(**options).score(chain, ToolContext(resources=resources)))


RUN: dict[str, tuple[Any, float]] = {
    # tests -> the share that add(a, b) = 3 passes; add itself passes all
    "texts with one name": (["def test():\n    assert add(1, 2) == 3", "def test():\n"
        "    assert add(2, 2) == 4"], 1 / 2),
    "inherited": (
        "import unittest\nclass Base(unittest.TestCase):\n    def test_a(self): self.assertEqual(add(1, 2), 3)\n"
        "class T(Base):\n    def test_b(self): self.assertEqual(add(2, 2), 4)\n"
        "    def test_c(self): self.assertEqual(add(5, 2), 7)",
        2 / 4,
    ),
    "mixed in": (
        "import unittest\nclass Mixin:\n    def test_a(self): self.assertEqual(add(2, 2), 4)\n"
        "class T(Mixin, unittest.TestCase):\n    def test_b(self): self.assertEqual(add(1, 2), 3)",
        1 / 2,
    ),
    "setUpClass": (
        CASE + "    def test_1(self): self.assertEqual(4, self.four)\n"
        "    @classmethod\n    def setUpClass(cls): cls.four = add(2, 2)",
        1 / 2,
    ),
    "setUpModule": (CASE + "    def test_1(self): assert four == add(2, 2)\ndef setUpModule():\n"
        "    global four\n    four = 4", 1 / 2),
    "skip": (CASE + "    @unittest.skip('x')\n    def test_1(self): self.assertEqual(add(1, 2), 4)", 1),
    "skipIf": (CASE + "    @unittest.skipIf(True, '')\n    def test_1(self): pass\n"
        "    def test_2(self): assert add(1, 1) == 2", 1 / 2),
    "expected failure": (CASE + "    @unittest.expectedFailure\n"
        "    def test_1(self): self.assertEqual(add(1, 2), 4)", 1),
    "subtests": (
        CASE + "    def test_1(self):\n        for n in (2, 3):\n"
        "            with self.subTest(n=n): assert add(1, n) == 1 + n",
        1 / 2,
    ),
    "async case": (AWAITED + "    async def test_a(self): self.assertEqual(add(2, 2), 4)", 0),
    "async case beside": (AWAITED + "    async def test_a(self): self.assertEqual(add(2, 2), 4)\n"
        "assert add(1, 2) == 3", 1 / 2),
    "async function": ("assert add(1, 2) == 3\nasync def test_a():\n    assert add(1, 3) == 4", 1 / 2),
    "async helper": ("async def verify():\n    assert add(1, 3) == 4\nverify()", 0),
    "class of pytest": (
        "class TestAdd:\n    def setup_method(self): self.n = 2\n    def test_a(self): assert add(1, self.n) == 3\n"
        "    def test_b(self): assert add(self.n, self.n) == 4",
        1 / 2,
    ),
    "class beside": ("assert add(1, 2) == 3\nclass TestX:\n    def test_a(self): assert add(2, 2) == 4", 1 / 2),
    "class with an async method": ("class TestX:\n    async def test_a(self): assert add(2, 2) == 4", 0),
    "conditional": ("if True:\n    def test_a():\n        assert add(1, 2) == 3\ndef test_b():\n"
        "    assert add(2, 2) == 4", 1 / 2),
    "helper": ("def test(f, x, y):\n    assert f(*x) == y\ntest(add, (1, 2), 3)\ntest(add, (2, 2), 4)", 1 / 2),
    "helper in a loop": ("def test_case(a, b, c):\n    assert add(a, b) == c\nfor n in (1, 2):\n"
        "    test_case(n, n, 2 * n)", 0),
    "defaults": ("def test_add(a=2, b=2, c=4):\n    assert add(a, b) == c", 0),
    "main guard": ("if __name__ == '__main__':\n    assert add(2, 2) == 4", 0),
    "main guard of unittest": (CASE + "if __name__ == '__main__':\n    unittest.main()", 1),
    "main": (CASE + "from unittest import main\nmain()", 1),
    "exit": ("import sys\ndef run():\n    assert add(2, 2) == 4\n    return 0\nsys.exit(run())", 0),
    "what a statement left undefined": ("r = [1][add(0, 0)]\nassert r == 1", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", RUN)
def test_every_test_runs_and_counts(resources: ResourceManager, name: str) -> None:
    tests, share = RUN[name]
    assert score(resources, RIGHT, tests) == RewardResult(1.0, {"tests_passed": 1.0})
    result = score(resources, WRONG, tests, partial=True)
    assert result.score == pytest.approx(share)


def test_each_text_has_a_check_of_its_own(resources: ResourceManager) -> None:
    tests = [f"def check(candidate):\n    assert candidate({n}, 2) == {n + 2}" for n in (1, 2)]
    assert score(resources, RIGHT, tests, "add").score == 1.0
    assert score(resources, WRONG, tests, "add", partial=True).score == 0.5


@pytest.mark.parametrize(("value", "wanted"), [("a + b", 1.0), ("0", 0.0)])
@pytest.mark.parametrize(
    "tests",
    [
        AWAITED + "    async def test_a(self): self.assertEqual(await add(1, 2), 3)",
        "import asyncio\nassert asyncio.run(add(1, 2)) == 3",
        "import asyncio\nasync def test_a():\n    assert await asyncio.gather(add(1, 2), add(2, 2)) == [3, 4]",
    ],
)
def test_a_coroutine_of_the_code_is_awaited(resources: ResourceManager, tests: str, value: str, wanted: float) -> None:
    assert score(resources, ASYNC.format(value), tests).score == wanted


UNSCORED = {
    "fixture": ("def test_a(tmp_path):\n    assert add(1, 2) == 3", "takes tmp_path"),
    "never awaited": (CASE + "    async def test_1(self): assert add(2, 2) == 4", "is async"),
    "generator": ("def test_a():\n    yield add(1, 2) == 3", "is a generator"),
    "generator of a decorator": (
        "import functools\ndef lazy(f):\n    @functools.wraps(f)\n    def g(*a): return (x for x in ())\n    return g\n"
        "@lazy\ndef test_a(): assert add(2, 2) == 4",
        "gave a generator",
    ),
    "class that nothing finds": ("assert add(1, 2) == 3\nclass AddTests:\n    def test_a(self): assert 0", "AddTests"),
    "class with an __init__": ("class TestX:\n    def __init__(self): pass\n    def test_a(self): assert 0", "TestX"),
    "class in a class": ("class TestX:\n    def test_a(self): pass\n    class TestY:\n"
        "        def test_b(self): assert 0", "TestX"),
    "mark": ("def test_a():\n    assert add(1, 2) == 3\nclass M: name = 'xfail'\n"
        "test_a.pytestmark = [M]", "is marked 'xfail'"),
    "check of nothing": ("assert add(1, 2) == 3\ndef check(candidate):\n"
        "    assert candidate(2, 2) == 4", "entry_point"),
    "all skipped": ("import unittest\n@unittest.skip('')\nclass T(unittest.TestCase):\n"
        "    def test_a(self): pass", "all are skipped"),
    "lambda first": ("assert apply(lambda x: x + 1, 3) == 4", "a function cannot be passed"),
    "lambda later": ("assert add(1, 2) == 3\nassert apply(lambda x: x + 1, 3) == 4", "a function cannot be passed"),
    "lambda expected to fail": (
        CASE + "    def test_1(self):\n        with self.assertRaises(ValueError): apply(lambda x: x, 3)",
        "a function cannot be passed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", [RIGHT, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("name", UNSCORED)
def test_what_cannot_be_run_as_written_is_said(resources: ResourceManager, name: str, code: str) -> None:
    tests, reason = UNSCORED[name]
    with pytest.raises(CallFailed, match="its tests are broken") as raised:
        score(resources, f"{code}\ndef apply(f, x): return f(x)", tests)
    assert reason in str(raised.value)


def test_a_function_of_the_code_can_be_passed_to_it(resources: ResourceManager) -> None:
    assert score(resources, f"{RIGHT}\ndef apply(f, *x): return f(*x)", "assert apply(add, 1, 2) == 3").score == 1.0


def test_a_test_that_skips_itself_for_what_the_code_said_has_failed(resources: ResourceManager) -> None:
    tests = CASE + "    def test_1(self):\n        if add(2, 2) != 4: self.skipTest('not able')\n"
    assert score(resources, WRONG, tests).score == 0.0
    assert score(resources, RIGHT, tests).score == 1.0
