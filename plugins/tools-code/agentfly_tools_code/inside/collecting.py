"""The tests that a text defined: as unittest and pytest find them, or why nothing here can run them."""

from __future__ import annotations

import inspect
import types
import unittest
from collections.abc import Iterator, Mapping
from typing import Any

from agentfly_tools_code.inside.reading import Broken, Source

MODULE = "__tests__"
_OWN = (MODULE, "__main__")
_HARMLESS = {"asyncio", "anyio"}
"""Marks of pytest that ask for nothing but what is done anyway."""
_FIXTURES = ("setup_module", "teardown_module", "setup_function", "teardown_function", "load_tests")
_NOSE = ("setup", "teardown")


def collect(new: Mapping[str, Any], source: Source, entry: str | None) -> Iterator[tuple[str, Any]]:
    """(name, function, or class with tests) of what a text has bound.

    Raises:
        Broken: something looks like a test and cannot be run as it was meant.
    """
    seen: set[int] = set()
    for name, value in new.items():
        if _is_fixture(value) or (name in _FIXTURES and callable(value) and name not in source.used):
            raise Broken(f"{name}: only pytest or a loader of unittest would run it")
        if getattr(value, "__module__", None) not in _OWN or id(value) in seen:
            continue
        if isinstance(value, types.FunctionType):
            if name == "check" and not entry and required(value) and name not in source.used:
                raise Broken("check takes the function under test: name the field of its name as entry_point")
            if (name == "check" and entry) or (name.startswith("test") and _is_run(name, value, source)):
                yield name, value
        elif isinstance(value, type) and _has_tests(name, value, source):
            yield name, value
        seen.add(id(value))


def required(function: Any) -> list[str]:
    """Parameters that it must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def methods_of(kind: type) -> list[str]:
    """Names of its tests and those of its bases, in the order in which they stand."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return [name for name in names if name.startswith("test") and callable(getattr(kind, name, None))]


def check_form(name: str, function: Any, given: int = 0) -> None:
    """Refuse what cannot be called as a test.

    Raises:
        Broken: why.
    """
    _check_marks(name, function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Broken(f"{name} is a generator: no test runner runs it")
    if missing := required(function)[given:]:
        raise Broken(f"{name} takes {', '.join(missing)}: nothing here gives it fixtures or parameters")


def _is_run(name: str, function: Any, source: Source) -> bool:
    """Whether it is a test; one with parameters that the tests use themselves is a helper of theirs."""
    if getattr(function, "__test__", True) is False:
        return False
    if required(function) and name in source.used and not hasattr(function, "pytestmark"):
        return False
    check_form(name, function)
    return True


def _has_tests(name: str, kind: type, source: Source) -> bool:
    if getattr(kind, "__test__", True) is False:
        return False
    methods = methods_of(kind)
    if issubclass(kind, unittest.TestCase):
        awaited = issubclass(kind, unittest.IsolatedAsyncioTestCase)
        for method in methods:
            function = getattr(kind, method)
            check_form(f"{name}.{method}", function, 1)
            if inspect.iscoroutinefunction(function) and not awaited:
                raise Broken(f"{name}.{method} is async, which only an IsolatedAsyncioTestCase awaits")
        return bool(methods) or hasattr(kind, "runTest")
    if not methods:
        return False
    if not name.startswith("Test") or kind.__init__ is not object.__init__:  # type: ignore[misc]
        if name in source.used:
            return False
        raise Broken(f"no test runner finds the tests of class {name}: it is no TestCase, or not named Test... or has "
                     "an __init__")  # fmt: skip
    _check_marks(name, kind)
    if any(isinstance(value, type) and methods_of(value) for value in vars(kind).values()):
        raise Broken(f"class {name} holds another class with tests")
    if found := [n for n in _NOSE if hasattr(kind, n)]:
        raise Broken(f"{name}.{found[0]}: today's pytest does not call it; name it {found[0]}_method")
    for method in methods:
        if isinstance(inspect.getattr_static(kind, method), staticmethod | classmethod):
            raise Broken(f"{name}.{method} is no plain method")
        check_form(f"{name}.{method}", getattr(kind, method), 1)
    return True


def _check_marks(name: str, value: Any) -> None:
    marks = getattr(value, "pytestmark", [])
    for mark in marks if isinstance(marks, list) else [marks]:
        if getattr(mark, "name", "") not in _HARMLESS:
            raise Broken(f"{name} is marked {getattr(mark, 'name', '?')!r}, which only pytest understands")


def _is_fixture(value: Any) -> bool:
    return type(value).__name__ == "FixtureFunctionDefinition" or (
        isinstance(value, types.FunctionType) and hasattr(value, "_pytestfixturefunction")
    )
