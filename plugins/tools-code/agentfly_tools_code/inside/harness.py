"""Runs tests. The code under test is elsewhere: the tests see stand-ins whose calls go out to it.

Runs in a sandbox of its own, into which the code under test never gets anything but plain data. Only where tests must
import the code (``code`` in the request) it runs here too, and may then tamper with all of this.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import os
import symtable
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from agentfly_tools_code.inside.standins import Line, Named
from agentfly_tools_code.inside.wire import receive

MODULE = "solution"


def main() -> None:
    """Run the tests of the one request; results go out as they come."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    line = Line(requests, replies)
    request = json.loads(receive(requests))
    try:
        Run(line, request).all()
        line.say({"end": True})
    except Broken as error:
        line.say({"broken": str(error)})


class Broken(Exception):
    """The tests are at fault."""


class Run:
    """The tests of one request, in the order in which they stand."""

    def __init__(self, line: Line, request: dict[str, Any]) -> None:
        self._line = line
        self._texts: list[str] = request["tests"]
        self._entry: str | None = request["entry_point"]
        self._code: str | None = request["code"]
        self._names: dict[str, Any] = {}
        self._defined: set[str] = set()
        """Functions of the tests themselves."""

    def all(self) -> None:
        """Run every test and say how it ended.

        Raises:
            Broken: the tests cannot be read, or there is none.
        """
        trees = [self._parse(text, f"<tests {i}>") for i, text in enumerate(self._texts, 1)]
        self._defined = {n.name for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef)}
        expected = sum(_count(tree, self._entry, self._defined) for tree in trees)
        if not expected:
            raise Broken("there is no test in it")
        self._line.say({"expected": expected})
        self._names = {"__name__": "__tests__", "__builtins__": builtins, **self._candidate()}
        for tree in trees:
            for statement in tree.body:
                self._statement(statement)
        for name, function in self._functions():
            self._test(name, function)

    def _parse(self, text: str, name: str) -> ast.Module:
        try:
            return ast.parse(text, name)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Broken(f"{type(error).__name__}: {error}") from None

    def _candidate(self) -> dict[str, Any]:
        """The names under which the tests find the code under test."""
        module = types.ModuleType(MODULE)
        sys.modules[MODULE] = module
        if self._code is not None:
            try:
                exec(compile(self._code, "<solution>", "exec", dont_inherit=True), module.__dict__)
            except BaseException as error:
                self._line.say({"stopped": f"the code: {type(error).__name__}: {error}"[:500]})
            return {k: v for k, v in module.__dict__.items() if not k.startswith("__")}
        free = {self._entry} if self._entry else _free_names(self._texts)
        forgotten = set() if self._entry else {n for n in free if _is_module(n, self._texts)}
        wanted = free - forgotten
        found: dict[str, Any] = {name: Named(self._line, name) for name in sorted(wanted)}
        module.__dict__.update(found)
        module.__getattr__ = self._named  # type: ignore[method-assign]
        for name in forgotten:
            with contextlib.suppress(ImportError):  # of another platform: the name stays undefined
                found[name] = importlib.import_module(name)
        return found

    def _named(self, name: str) -> Named:
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(self._line, name)

    def _statement(self, statement: ast.stmt) -> None:
        code = compile(ast.Module([statement], []), "<tests>", "exec", dont_inherit=True)
        name = f"line {statement.lineno}"
        if _is_test(statement, self._defined):
            self._test(name, lambda: exec(code, self._names))
            return
        try:
            exec(code, self._names)
        except BaseException as error:
            if self._is_broken(error):
                raise Broken(f"{name}: {type(error).__name__}: {error}") from None
            self._line.say({"stopped": f"{name}: {type(error).__name__}: {error}"[:500]})

    def _functions(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The tests that the code of the tests defines."""
        check = self._names.get("check")
        entry = self._entry
        if entry and isinstance(check, types.FunctionType):
            yield "check", lambda: check(self._names[entry])
        for name, value in list(self._names.items()):
            if isinstance(value, types.FunctionType) and name.startswith("test"):
                yield name, value
            if isinstance(value, type) and issubclass(value, unittest.TestCase) and value is not unittest.TestCase:
                for method in unittest.TestLoader().getTestCaseNames(value):
                    yield f"{name}.{method}", _case(value, method)

    def _test(self, name: str, function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            if self._is_broken(error):
                raise Broken(f"{name}: {type(error).__name__}: {error}") from None
            self._line.say({"failed": name, "why": f"{type(error).__name__}: {error}"[:500]})
        else:
            self._line.say({"passed": name})

    def _is_broken(self, error: BaseException) -> bool:
        """Whether the tests themselves are at fault: nothing the code under test does may make it look so."""
        if self._code is not None or isinstance(error, AssertionError) or getattr(error, "_agentfly_foreign", False):
            return False
        if not self._line.answered or isinstance(error, ImportError):
            return True
        return isinstance(error, NameError) and _innermost(error).startswith("<tests")


def _innermost(error: BaseException) -> str:
    """The file in which it was raised: of text that the tests evaluate, not that of the tests."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename


def _case(kind: type[unittest.TestCase], method: str) -> Callable[[], None]:
    def run() -> None:
        case = kind(method)
        case.setUp()
        try:
            getattr(case, method)()
        finally:
            case.tearDown()
            case.doCleanups()

    return run


def _is_test(node: ast.stmt, defined: set[str]) -> bool:
    """Whether a statement at the top asserts something, itself or by calling a function of the tests."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        return node.value.func.id in defined
    return any(isinstance(part, ast.Assert) for part in ast.walk(node))


def _count(tree: ast.Module, entry: str | None, defined: set[str]) -> int:
    """How many tests there will be."""
    total = 0
    for node in tree.body:
        if _is_test(node, defined):
            total += 1
        elif isinstance(node, ast.FunctionDef):
            total += node.name.startswith("test") or (entry is not None and node.name == "check")
        elif isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(base) for base in node.bases):
            total += sum(isinstance(n, ast.FunctionDef) and n.name.startswith("test") for n in node.body)
    return total


def _free_names(texts: list[str]) -> set[str]:
    """Names that the tests use and neither define nor import, and that are no builtins."""
    used: set[str] = set()
    bound: set[str] = set(dir(builtins)) | {"__name__", "__file__"}
    for text in texts:
        waiting = [symtable.symtable(text, "<tests>", "exec")]
        top = waiting[0]
        bound |= {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
        while waiting:
            table = waiting.pop()
            waiting += table.get_children()
            used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
    return used - bound


def _is_module(name: str, texts: list[str]) -> bool:
    """Whether a free name is a module of the standard library that the tests forgot to import.

    They use nothing but its attributes. The code under test may have a function of that name, ``select`` say, but it
    must not get to say what ``math.isclose`` finds.
    """
    if name not in sys.stdlib_module_names:
        return False
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    return uses == sum(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name for node in nodes
    )


if __name__ == "__main__":
    main()
