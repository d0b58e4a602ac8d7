"""``@tool``: a tool from a function or method."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, overload

from agentfly_core.functions import FunctionObject
from agentfly_core.tools.arguments import Arguments, SchemaArguments, SignatureArguments
from agentfly_core.tools.base import DEFAULT_MAX_OUTPUT_CHARS, CallableTool
from agentfly_core.tools.docstrings import parse_docstring
from agentfly_core.types.tools import ToolContext


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to call the function: its arguments, where the context goes, what cannot go by name."""

    arguments: Arguments
    contexts: tuple[str, ...]
    positional: tuple[str, ...]


class FunctionTool(FunctionObject, CallableTool):
    """A tool that is still the function it was made from: ``calculator("1+1")`` calls it as before.

    The schema is worked out when it is first asked for, so that annotations may name what the module defines later.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        exclusive: bool = False,
        max_output_chars: int = DEFAULT_MAX_OUTPUT_CHARS,
        frame: FrameType | None = None,
    ) -> None:
        FunctionObject.__init__(self, function, frame)
        summary, self._texts = parse_docstring(inspect.getdoc(self._function))
        CallableTool.__init__(
            self,
            name or str(getattr(self._function, "__name__", "")),
            summary if description is None else description,
            timeout=timeout,
            max_concurrency=max_concurrency,
            exclusive=exclusive,
            max_output_chars=max_output_chars,
        )
        self._given = None if parameters is None else SchemaArguments(self.name, parameters)
        self._plan: _Plan | None = None

    def __repr__(self) -> str:
        return f"<FunctionTool {self.name}>"

    def _forget(self) -> None:
        self._plan = None

    def _arguments(self) -> Arguments:
        return self._planned().arguments

    def _prepare(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        plan = self._planned()
        values = {**arguments, **dict.fromkeys(plan.contexts, context)}
        positional = [values.pop(name) for name in plan.positional if name in values]
        return functools.partial(self._target, *positional, **values)

    def _planned(self) -> _Plan:
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def _make_plan(self) -> _Plan:
        parameters = self._signature()
        hints = self._hints(parameters)
        contexts = tuple(name for name, hint in hints.items() if _is_context(hint))
        positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
        shown = [p for p in parameters if p.name not in contexts]
        return _Plan(self._given or SignatureArguments(self.name, shown, hints, self._texts), contexts, positional)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
    exclusive: bool = False,
    max_output_chars: int = DEFAULT_MAX_OUTPUT_CHARS,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function, sync or async, or a method into a tool, with or without options.

    The schema comes from the signature, the descriptions from the docstring. A parameter annotated ``ToolContext``
    is filled by the engine and never shown to the model. On static and class methods it stands outermost.

    Args:
        name: the function's name if not given.
        description: the docstring up to its first section if not given.
        parameters: a JSON Schema to show and check instead of the signature's.
        timeout, max_concurrency, exclusive, max_output_chars: see ``CallableTool``.
    """
    frame = sys._getframe(1)
    if function is not None:
        return FunctionTool(function, frame=frame, **options)
    return lambda function: FunctionTool(function, frame=frame, **options)


def _is_context(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return set(typing.get_args(hint)) == {ToolContext, type(None)}
    return hint is ToolContext
