"""What ``@tool`` and ``@reward`` share: a function as an object that stays callable and binds like a method."""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar

from agentfly_core.types.errors import UsageError
from agentfly_core.types.tools import RewardResult, ToolContext, ToolResult

S = TypeVar("S", bound="FunctionObject")

_UNBOUND = object()
_FALLBACKS: dict[str, Any] = {"ToolContext": ToolContext, "ToolResult": ToolResult, "RewardResult": RewardResult}
"""Our own names, should a module import them for type checkers only."""


class FunctionObject:
    """Wraps a function, static method or class method. Access through an instance gives a bound copy."""

    def __init__(self, function: Any, frame: FrameType | None = None) -> None:
        self._binds_class = isinstance(function, classmethod)
        self._binds = not isinstance(function, staticmethod)
        if isinstance(function, staticmethod | classmethod):
            function = function.__func__
        if not callable(function):
            raise UsageError(f"{function!r:.100} is no function")
        self._function: Callable[..., Any] = function
        self._self: Any = _UNBOUND
        self._local_names = _local_names(function, frame)
        functools.update_wrapper(self, function)

    def __get__(self: S, instance: Any, owner: type | None = None) -> S:
        target = owner if self._binds_class else instance
        if target is None or not self._binds or self._self is not _UNBOUND:
            return self
        bound = copy.copy(self)
        bound._self = target
        bound._forget()
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function."""
        return self._target(*args, **kwargs)

    @property
    def _target(self) -> Callable[..., Any]:
        return self._function if self._self is _UNBOUND else functools.partial(self._function, self._self)

    def _forget(self) -> None:
        """Drop what was worked out for the unbound function."""

    def _signature(self) -> list[inspect.Parameter]:
        """The parameters, without the one that is bound.

        Raises:
            UsageError: an unbound method, or a function that has ``*args``.
        """
        where = f"{self._function.__module__}.{getattr(self._function, '__qualname__', self._function)}"
        parameters = list(inspect.signature(self._function).parameters.values())
        if self._self is not _UNBOUND:
            parameters = parameters[1:]
        elif parameters and parameters[0].name in ("self", "cls"):
            raise UsageError(
                f"{where} is a method: take it from an instance (`Thing().{self._function.__name__}`); "
                "on a class method the decorator stands above @classmethod"
            )
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise UsageError(f"{where}: *{parameter.name} cannot be filled by name; use a list parameter")
        return parameters

    def _hints(self, parameters: list[inspect.Parameter]) -> dict[str, Any]:
        """Resolved annotations of the parameters; those without one are left out.

        Raises:
            UsageError: one names something that cannot be found at run time.
        """
        function = inspect.unwrap(self._function)
        return {p.name: self._resolve(function, p) for p in parameters if p.annotation is not p.empty}

    def _resolve(self, function: Any, parameter: inspect.Parameter) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
        names = {**_FALLBACKS, **getattr(function, "__globals__", {})}
        try:
            return typing.get_type_hints(holder, names, self._local_names, include_extras=True)["it"]
        except Exception as error:
            raise UsageError(
                f"{function.__module__}.{function.__qualname__}: the annotation of {parameter.name!r}, "
                f"{parameter.annotation!r}, cannot be resolved ({type(error).__name__}: {error}); "
                "import the type where it exists at run time, not only for type checkers"
            ) from error


def _local_names(function: Any, frame: FrameType | None) -> Mapping[str, Any]:
    """Names that postponed annotations take from the frame in which the function is defined."""
    annotations = getattr(inspect.unwrap(function), "__annotations__", {})
    texts = [text for key, text in annotations.items() if isinstance(text, str) and key != "return"]
    if frame is None or frame.f_locals is frame.f_globals or not texts:
        return {}
    wanted: set[str] = set()
    for text in texts:
        wanted.update(_names_in(text))
    return {name: value for name, value in frame.f_locals.items() if name in wanted}


def _names_in(text: str) -> tuple[str, ...]:
    try:
        return compile(text, "<annotation>", "eval").co_names
    except SyntaxError:
        return ()
