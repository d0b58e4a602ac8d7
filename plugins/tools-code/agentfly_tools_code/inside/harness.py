"""Runs tests. The code under test is elsewhere: the tests see stand-ins whose calls go out to it.

Runs in a sandbox of its own, into which the code under test never gets anything but plain data. Only where tests must
import the code (``code`` in the request) it runs here too, and may then tamper with all of this.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import json
import os
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

from agentfly_tools_code.inside.cases import Result, Unfinished, run_cases, run_class
from agentfly_tools_code.inside.collecting import MODULE, collect
from agentfly_tools_code.inside.reading import Broken, Source, is_main_guard
from agentfly_tools_code.inside.standins import Line, Named
from agentfly_tools_code.inside.wire import receive

SOLUTION = "solution"


def main() -> None:
    """Run the tests of the one request; results go out as they come."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    line = Line(requests, replies)
    request = json.loads(receive(requests))
    try:
        line.say({"end": True, "expected": Run(line, request).all()})
    except Broken as error:
        line.say({"broken": str(error)[:2000]})


class Run:
    """The tests of one request, in the order in which they stand."""

    def __init__(self, line: Line, request: dict[str, Any]) -> None:
        self._line = line
        self._entry: str | None = request["entry_point"]
        self._code: str | None = request["code"]
        self._source = Source(request["tests"])
        module = sys.modules[MODULE] = types.ModuleType(MODULE)
        self._names = module.__dict__
        self._ran = 0

    def all(self) -> int:
        """Run every test and say how it ended; how many there were.

        Raises:
            Broken: the tests cannot be run as they stand, or there is none.
        """
        expected = self._source.count(self._entry)
        if not expected:
            raise Broken("there is no test in it")
        self._line.say({"expected": expected})
        self._names.update(self._candidate())
        unittest.main = _nothing  # type: ignore[assignment,misc]
        for tree in self._source.trees:
            before = dict(self._names)
            for statement in tree.body:
                self._statement(statement)
            new = {k: v for k, v in self._names.items() if k not in before or before[k] is not v}
            for name, test in list(collect(new, self._source, self._entry)):
                self._defined(name, test)
        if not self._ran:
            if not self._line.asked:
                raise Broken("none of its tests ran: all are skipped")
            self._line.say({"stopped": "no test ran"})
        return self._ran

    def _candidate(self) -> dict[str, Any]:
        """The names under which the tests find the code under test."""
        module = types.ModuleType(SOLUTION)
        sys.modules[SOLUTION] = module
        if self._code is not None:
            try:
                exec(compile(self._code, "<solution>", "exec", dont_inherit=True), module.__dict__)
            except BaseException as error:
                self._line.say({"stopped": f"the code: {_told(error)}"})
            return {k: v for k, v in module.__dict__.items() if not k.startswith("__")}
        free = {self._entry} if self._entry else self._source.free_names()
        forgotten = set() if self._entry else {n for n in free if self._source.is_module(n)}
        found: dict[str, Any] = {name: self._named(name) for name in sorted(free - forgotten)}
        module.__dict__.update(found)
        module.__getattr__ = self._named  # type: ignore[method-assign]
        for name in forgotten:
            with contextlib.suppress(ImportError):  # of another platform: the name stays undefined
                found[name] = importlib.import_module(name)
        return found

    def _named(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(self._line, name)

    def _statement(self, statement: ast.stmt) -> None:
        name = f"line {statement.lineno}"
        is_test = self._source.is_test(statement)
        guard = is_main_guard(statement)
        if guard and not is_test:
            return
        self._names["__name__"] = "__main__" if guard else MODULE
        try:
            if is_test:
                self._test(name, lambda: self._execute(statement))
            else:
                self._around(name, lambda: self._execute(statement))
        finally:
            self._names["__name__"] = MODULE

    def _execute(self, statement: ast.stmt) -> Any:
        if isinstance(statement, ast.Expr):
            return eval(compile(ast.Expression(statement.value), "<tests>", "eval", dont_inherit=True), self._names)
        exec(compile(ast.Module([statement], []), "<tests>", "exec", dont_inherit=True), self._names)
        return None

    def _defined(self, name: str, test: Any) -> None:
        """Run what the tests define."""
        if not isinstance(test, type):
            entry = self._entry
            self._test(name, (lambda: test(self._names[entry])) if name == "check" and entry else test)
        elif issubclass(test, unittest.TestCase):
            around: list[BaseException] = []
            result = Result(self._look, lambda: self._line.asked)
            self._around(name, lambda: around.extend(run_cases(name, test, result, self._tell)))
            for error in around:
                self._line.say({"stopped": f"{name}: {_told(error)}"})
        else:
            self._around(name, lambda: run_class(name, test, self._test))

    def _test(self, name: str, function: Callable[[], Any]) -> None:
        failure: BaseException | None = None
        try:
            _finish(name, function())
        except SystemExit as leave:  # of the tests: the code under test cannot raise it here
            failure = leave if leave.code else None
        except BaseException as error:
            failure = error
        if failure is not None:
            self._look(failure)
        self._tell(name, failure)

    def _around(self, name: str, function: Callable[[], Any]) -> None:
        """What stands between the tests."""
        try:
            function()
        except BaseException as error:
            self._look(error)
            if not (isinstance(error, SystemExit) and not error.code):
                self._line.say({"stopped": f"{name}: {_told(error)}"})
        self._refuse_unpassable()

    def _tell(self, name: str, failure: BaseException | None) -> None:
        self._refuse_unpassable()
        self._ran += 1
        self._line.say({"passed": name} if failure is None else {"failed": name, "why": _told(failure)})

    def _refuse_unpassable(self) -> None:
        """Tests may have caught what came of it, or even expected it."""
        if self._line.unpassable and self._code is None:
            raise Broken(self._line.unpassable)

    def _look(self, error: BaseException) -> None:
        """Tell whether the tests themselves are at fault: nothing the code under test does may make it look so.

        Raises:
            Broken: they are.
        """
        if isinstance(error, Broken):
            raise error
        if isinstance(error, Unfinished):
            raise Broken(str(error))
        self._refuse_unpassable()
        if self._code is not None or isinstance(error, AssertionError) or getattr(error, "_agentfly_foreign", False):
            return
        unknown = isinstance(error, NameError) and _innermost(error).startswith("<tests") and self._is_unknown(error)
        if not self._line.answered or isinstance(error, ImportError) or unknown:
            raise Broken(_told(error)) from None

    def _is_unknown(self, error: NameError) -> bool:
        """Whether nothing defines the name. Where something does, the code may have kept it from that."""
        return not isinstance(error, UnboundLocalError) and error.name not in self._source.bound


def _finish(name: str, result: Any) -> None:
    """Run to its end what a test gave."""
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise Unfinished(f"{name} gave a {type(result).__name__}, which nothing runs")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In place of ``unittest.main``: the cases are run anyway."""


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # what the tests define
        return type(error).__name__


def _innermost(error: BaseException) -> str:
    """The file in which it was raised: of text that the tests evaluate, not that of the tests."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename


if __name__ == "__main__":
    main()
