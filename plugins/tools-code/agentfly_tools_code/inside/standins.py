"""What tests see of code under test that is elsewhere: names and objects whose use goes out to it."""

from __future__ import annotations

import builtins
import json
from typing import Any

from agentfly_tools_code.inside.values import Unfit, decode, encode
from agentfly_tools_code.inside.wire import receive, send

_ENDS = ("StopIteration", "StopAsyncIteration", "GeneratorExit")
"""They end an iteration of whoever calls."""


class CandidateError(Exception):
    """What the code under test raised, where it is no builtin exception."""


class Line:
    """To the outside.

    Attributes:
        answered: whether the code under test has answered yet.
        asked: how often it was asked something.
        unpassable: why something that the tests passed could not reach it; empty if there was nothing.
    """

    def __init__(self, requests: int, replies: int) -> None:
        self._requests = requests
        self._replies = replies
        self.answered = False
        self.asked = 0
        self.unpassable = ""
        self._objects: dict[int, Remote] = {}

    def say(self, message: dict[str, Any]) -> None:
        """Tell, and wait for nothing."""
        send(self._replies, json.dumps(message).encode())

    def ask(self, given: tuple[Any, ...] = (), **request: Any) -> Any:
        """What an operation on the code under test gives, or raises there.

        Args:
            given: arguments of a call; what it changed in them is changed here as well.
        """
        self.asked += 1
        self.say({"ask": request})
        answer = json.loads(receive(self._requests))
        self.answered = True
        if "error" in answer:
            steps = request["do"] == "special" and request["name"] == "__next__"
            raise _as_exception(answer["error"], answer["text"], steps)
        try:
            for index, data in answer.get("changed", ()):
                _change(given[index], self._decode(data))
            return self._decode(answer["value"])
        except (Unfit, IndexError, TypeError, ValueError) as error:
            raise _foreign(CandidateError(f"its value cannot be used: {error}")) from None

    def encode(self, value: Any) -> Any:
        """An argument as plain data, with references to what is not here."""
        return encode(value, self._reference)

    def _reference(self, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            return ["o", value._target]
        if isinstance(value, Named):
            return ["n", value._target]
        self.unpassable = f"a {type(value).__name__} cannot be passed to the code under test: it is no plain data"
        raise Unfit(self.unpassable)

    def _decode(self, data: Any) -> Any:
        return decode(data, self._object)

    def _object(self, reference: list[Any]) -> Remote:
        """The one stand-in of an object: it is itself however often it comes."""
        number = reference[1]
        if number not in self._objects:
            self._objects[number] = (RemoteCoroutine if "send" in reference[3] else Remote)(self, reference)
        return self._objects[number]


def _change(container: Any, content: Any) -> None:
    """Give a container that was passed the content that the call left in it."""
    if type(container) is not type(content):
        raise Unfit(f"{type(content).__name__} took the place of {type(container).__name__}")
    if isinstance(container, list | bytearray):
        container[:] = content
    elif isinstance(container, dict | set):
        container.clear()
        container.update(content)


def _as_exception(names: list[str], text: str, steps: bool) -> BaseException:
    """The nearest builtin exception in the order of the original's classes, marked as foreign.

    Args:
        steps: a step of an iterator raised it, which may end with StopIteration. Raised by anything else, that would
            end the ``map`` of the tests that calls it as if there was nothing more to test.
    """
    for name in names:
        if name in _ENDS and not (steps and name == "StopIteration"):
            return _foreign(RuntimeError(f"the code under test raised {name}"))
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return _foreign(kind(text))
            except TypeError:  # takes more than a text
                continue
    return _foreign(CandidateError(": ".join([names[0], text])))


def _foreign(error: BaseException) -> BaseException:
    error.__dict__["_agentfly_foreign"] = True
    return error


class Named:
    """A function or class of the code under test, by its name. It need not exist until it is used."""

    def __init__(self, line: Line, name: str) -> None:
        self.__dict__.update(_line=line, _target=name, __name__=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._line.ask(
            args,
            do="call",
            target=self._target,
            args=[self._line.encode(a) for a in args],
            kwargs={k: self._line.encode(v) for k, v in kwargs.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._line.ask(do="attribute", target=self._target, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._line.ask(do="assign", target=self._target, name=name, value=self._line.encode(value))


class Remote(Named):
    """An object that stays with the code under test. It equals nothing but itself: its own ``__eq__`` is not asked."""

    def __init__(self, line: Line, data: list[Any]) -> None:
        _, number, kind, specials = data
        super().__init__(line, kind)
        self.__dict__.update(_target=number, _specials=specials)

    def _special(self, name: str, *args: Any) -> Any:
        if name not in self._specials:
            raise _foreign(TypeError(f"{self.__name__} has no {name}"))
        return self._line.ask(do="special", target=self._target, name=name, args=[self._line.encode(a) for a in args])

    def __iter__(self) -> Any:
        return self._special("__iter__")

    def __next__(self) -> Any:
        return self._special("__next__")

    def __len__(self) -> int:
        return int(self._special("__len__"))

    def __getitem__(self, key: Any) -> Any:
        return self._special("__getitem__", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._special("__setitem__", key, value)

    def __delitem__(self, key: Any) -> None:
        self._special("__delitem__", key)

    def __bool__(self) -> bool:
        return len(self) > 0 if "__len__" in self._specials else True


class RemoteCoroutine(Remote):
    """A coroutine that stays with the code under test: whoever awaits it waits until it has run there."""

    def __await__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise StopIteration(self._line.ask(do="await", target=self._target))

    def send(self, value: Any) -> Any:
        """Run it to its end."""
        return next(self)

    def throw(self, *error: Any) -> Any:
        """End it with an exception."""
        raise error[0]

    def close(self) -> None:
        """Nothing is left to be done."""
