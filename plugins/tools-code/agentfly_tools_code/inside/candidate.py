"""Serves the functions of code under test. Runs in a sandbox of its own; what it says is believed by nobody.

Answers are plain data. Other objects stay here, and go out as a number by which the tests may use them.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import types
from typing import Any

from agentfly_tools_code.inside.values import decode, encode
from agentfly_tools_code.inside.wire import receive, send

MAX_OBJECTS = 100_000
SPECIALS = ("__iter__", "__next__", "__len__", "__getitem__", "__setitem__", "__delitem__")
"""What the tests may do to an object of the code besides calling it and using its attributes."""


def main() -> None:
    """Load the code in the first request, then answer one call after another."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    solution = Solution()
    while True:
        try:
            request = json.loads(receive(requests))
        except EOFError:
            return
        send(replies, json.dumps(solution.answer(request)).encode())


class Solution:
    """The module made of the code, and the objects that the tests hold."""

    def __init__(self) -> None:
        self._module = types.ModuleType("solution")
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"value": ..., "changed": [[index, value], ...]}``, the second for arguments that the call changed.

        Or ``{"error": [names of the exception's classes], "text": ...}``.
        """
        self._changed: list[Any] = []
        try:
            return {"value": self._perform(request), "changed": self._changed}
        except BaseException as error:
            return {"error": [kind.__name__ for kind in type(error).__mro__][:-1], "text": _text(error)}

    def _perform(self, request: dict[str, Any]) -> Any:
        operation = request["do"]
        if operation == "load":
            sys.modules["solution"] = self._module
            exec(compile(request["code"], "<solution>", "exec", dont_inherit=True), self._module.__dict__)
            return None
        target = self._find(request["target"])
        if operation == "call":
            arguments = [decode(a, self._found) for a in request["args"]]
            named = {k: decode(v, self._found) for k, v in request["kwargs"].items()}
            value = self._show(target(*arguments, **named))
            after = [self._show(a) if isinstance(a, list | dict | set | bytearray) else None for a in arguments]
            self._changed = [[i, a] for i, a in enumerate(after) if a is not None and a != request["args"][i]]
            return value
        if operation == "await":
            return self._show(asyncio.new_event_loop().run_until_complete(target))
        if operation == "attribute":
            return self._show(getattr(target, request["name"]))
        if operation == "assign":
            return setattr(target, request["name"], decode(request["value"], self._found))
        if operation == "special":
            arguments = [decode(a, self._found) for a in request["args"]]
            return self._show(getattr(type(target), request["name"])(target, *arguments))
        return self._show(target)

    def _find(self, target: Any) -> Any:
        if isinstance(target, int):
            return self._objects[target]
        try:
            return getattr(self._module, target)
        except AttributeError:
            raise NameError(f"name {target!r} is not defined") from None

    def _found(self, reference: list[Any]) -> Any:
        return self._find(reference[1])

    def _show(self, value: Any) -> Any:
        return encode(value, self._keep)

    def _keep(self, value: Any) -> list[Any]:
        if len(self._objects) >= MAX_OBJECTS:
            raise MemoryError("too many objects are held by the tests")
        if id(value) in self._numbers:
            return self._reference(value)
        self._numbers[id(value)] = len(self._objects)
        self._objects.append(value)
        return self._reference(value)

    def _reference(self, value: Any) -> list[Any]:
        specials = [name for name in SPECIALS if hasattr(type(value), name)]
        specials += ["send"] if inspect.iscoroutine(value) else []
        return ["o", self._numbers[id(value)], type(value).__name__, specials]


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception:
        return ""


if __name__ == "__main__":
    main()
