"""What providers do with an object, wherever it lives: in this process or in a worker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentfly_core.registry import import_target
from agentfly_core.types import ResourceError, ToolContext, ToolOutcome, UsageError

Invoke = Callable[..., Awaitable[Any]]
"""``await invoke(function, *args, **kwargs)``: calls it where it blocks nobody, awaits what it returns."""


class Host:
    """An object made by ``module:factory`` (or ``file.py:factory``), and what can be asked of it."""

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke
        self._object: Any = None
        self._tools: dict[str, Any] | None = None

    async def start(self, target: str, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Make the object; the names of its public methods."""
        self._object = await self._invoke(lambda: load_target(target)(**arguments))
        kind = type(self._object)
        return frozenset(n for n in dir(self._object) if not n.startswith("_") and callable(getattr(kind, n, None)))

    async def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of a public method."""
        function = None if method.startswith("_") else getattr(self._object, method, None)
        if not callable(function):
            raise AttributeError(f"{type(self._object).__qualname__} has no method {method!r}")
        return await self._invoke(function, *args, **kwargs)

    async def tool_schemas(self) -> list[dict[str, Any]]:
        """Of each tool that the object's ``tools()`` offers: name, description, parameters and exclusive."""
        if self._tools is None:
            found = await self._invoke(self._object.tools) if hasattr(self._object, "tools") else ()
            self._tools = {tool.name: tool for tool in found}
        keys = ("name", "description", "parameters", "exclusive")
        return [{key: getattr(tool, key) for key in keys} for tool in self._tools.values()]

    async def call_tool(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """The outcome of one of those tools."""
        if self._tools is None:
            await self.tool_schemas()
        assert self._tools is not None
        outcome: ToolOutcome = await self._tools[name].call(arguments, context)
        return outcome

    async def recycle(self) -> bool:
        """Make the object as new for its next holder; False says that it must be replaced.

        An object whose ``reset`` needs no argument is reset by it (and replaced if that returns False). One whose
        ``reset`` takes arguments begins anew by itself, when its next holder calls it. Any other is replaced.
        """
        reset = getattr(self._object, "reset", None)
        if reset is None:
            return False
        required = [
            p
            for p in inspect.signature(reset).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        return True if required else await self._invoke(reset) is not False

    async def close(self) -> None:
        """Let the object free what it holds, if it knows how to."""
        if (close := getattr(self._object, "close", None)) is not None:
            await self._invoke(close)


def load_target(target: str) -> Callable[..., Any]:
    """The factory that ``module:attribute`` or ``path/file.py:attribute`` names.

    Raises:
        ResourceError: it leads nowhere.
    """
    if target.startswith("__main__:"):
        raise ResourceError(f"target {target!r}: other processes cannot import the main script; use a module or a file")
    try:
        factory = import_target(target)
    except (ImportError, AttributeError, UsageError) as error:
        raise ResourceError(f"target {target!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise ResourceError(f"target {target!r} is no factory but {factory!r:.100}")
    made: Callable[..., Any] = factory
    return made
