"""Tools described by a JSON Schema: remote tools, tools of an environment, generated ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from agentfly_core.tools.arguments import Arguments, SchemaArguments
from agentfly_core.tools.base import DEFAULT_MAX_OUTPUT_CHARS, CallableTool
from agentfly_core.types.tools import ToolContext


class SchemaTool(CallableTool):
    """A tool whose function takes ``(arguments, context)``: a dict checked against the schema, never changed.

    Raises:
        UsageError: ``parameters`` is no valid JSON Schema of an object.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any], ToolContext], Any],
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        timeout: float | None = None,
        max_concurrency: int | None = None,
        exclusive: bool = False,
        max_output_chars: int = DEFAULT_MAX_OUTPUT_CHARS,
    ) -> None:
        super().__init__(
            name,
            description,
            timeout=timeout,
            max_concurrency=max_concurrency,
            exclusive=exclusive,
            max_output_chars=max_output_chars,
        )
        self._function = function
        self._checked = SchemaArguments(name, parameters)

    def __repr__(self) -> str:
        return f"<SchemaTool {self.name}>"

    def _arguments(self) -> Arguments:
        return self._checked

    def _prepare(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        return functools.partial(self._function, dict(arguments), context)
