"""Runs classes of tests: those of unittest with its own loader and suite, those of pytest as it would."""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable
from typing import Any

from agentfly_tools_code.inside.collecting import methods_of, required
from agentfly_tools_code.inside.reading import Broken

Tell = Callable[[str, "BaseException | None"], None]
"""Told the name of a test, and what failed it or None."""


class Result(unittest.TestResult):
    """What became of the cases of one class.

    Args:
        look: raises Broken for an exception if the tests themselves are at fault.
        asked: how often the code under test has been asked something.
    """

    def __init__(self, look: Callable[[BaseException], None], asked: Callable[[], int]) -> None:
        super().__init__()
        self._look = look
        self._asked = asked
        self._began = asked()
        self.broken: Broken | None = None
        self.failed: dict[Any, BaseException] = {}
        self.succeeded: set[Any] = set()
        self.left_out: set[Any] = set()
        self.around: list[BaseException] = []
        """What went wrong outside of any case, in ``tearDownClass`` say."""
        self.all_left_out = False

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._began = self._asked()

    def addSuccess(self, test: Any) -> None:
        self.succeeded.add(test)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._judge(err[1])
        self.succeeded.add(test)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.failed[test] = AssertionError("it was expected to fail")

    def addSkip(self, test: Any, reason: str) -> None:
        """A test that looks at the code first and then skips itself has not been passed."""
        test = getattr(test, "test_case", test)
        if self._asked() != self._began:
            self.failed[test] = AssertionError(f"it used the code and then skipped itself: {reason}")
        elif isinstance(test, unittest.TestCase):
            self.left_out.add(test)
        else:
            self.all_left_out = True

    def addError(self, test: Any, err: Any) -> None:
        self._judge(err[1])
        if isinstance(test, unittest.TestCase):
            self.failed.setdefault(test, err[1])
        else:
            self.around.append(err[1])

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def _judge(self, error: BaseException) -> None:
        try:
            self._look(error)
        except Broken as broken:
            self.broken = self.broken or broken


def run_cases(name: str, kind: type[unittest.TestCase], result: Result, tell: Tell) -> list[BaseException]:
    """Run a TestCase; what went wrong around its cases.

    Raises:
        Broken: the tests are at fault.
    """
    suite = unittest.TestLoader().loadTestsFromTestCase(kind)
    cases: list[Any] = list(suite)
    if not issubclass(kind, unittest.IsolatedAsyncioTestCase):
        for case in cases:
            method = getattr(case, case._testMethodName)
            setattr(case, case._testMethodName, _finished(method))
    suite.run(result)
    if result.broken:
        raise result.broken
    for case in cases:
        title = f"{name}.{case._testMethodName}"
        if case in result.failed:
            tell(title, result.failed[case])
        elif case in result.succeeded:
            tell(title, None)
        elif case not in result.left_out and not result.all_left_out:
            tell(title, AssertionError("it did not get to run"))
    return result.around


def run_class(name: str, kind: Any, call: Callable[[str, Callable[[], Any]], None]) -> None:
    """Run the methods of a class as pytest does, each in an instance of its own."""
    _around(kind, "setup_class")
    for method in methods_of(kind):

        def test(method: str = method) -> Any:
            instance = kind()
            function = getattr(instance, method)
            _around(instance, "setup_method", function)
            try:
                if inspect.iscoroutinefunction(function):
                    import asyncio

                    return asyncio.run(function())
                return function()
            finally:
                _around(instance, "teardown_method", function)

        call(f"{name}.{method}", test)
    _around(kind, "teardown_class")


def _around(owner: Any, name: str, *given: Any) -> None:
    function = getattr(owner, name, None)
    if function is not None:
        function(*given[: len(required(function))])


def _finished(method: Any) -> Any:
    @functools.wraps(method)
    def run() -> None:
        result = method()
        if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise Unfinished(f"{method.__name__} gave a {type(result).__name__}, which nothing runs")

    return run


class Unfinished(Exception):
    """A test that would have to be awaited or iterated."""
