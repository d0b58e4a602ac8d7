"""The life of a tool call: checked, waited for its turn, run within its time limit, turned into an outcome."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from agentfly_core.calls import CallFailed, CallTimedOut, Limit, describe_error, invoke
from agentfly_core.tools.arguments import Arguments
from agentfly_core.tools.results import cut, to_result
from agentfly_core.types.errors import InvalidArguments, ResourceError, UsageError
from agentfly_core.types.messages import ToolSchema
from agentfly_core.types.tools import ToolContext, ToolOutcome, ToolStatus

DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_OUTPUT_CHARS = 16_000


class CallableTool(ABC):
    """What tools made from functions and from schemas have in common.

    Attributes:
        name: what the model calls it: letters, digits, ``_``, ``-`` and ``.``.
        description: what the model is told about it.
        timeout: seconds a call may run; None takes the context's, or else 30 s. Waiting for a place does not count.
        max_concurrency: calls that may run at once in this process, over all chains; None sets no limit. A call that
            ran past its timeout counts no longer, even if its thread still runs: Python cannot stop a thread.
        exclusive: never runs beside another call of the same turn.
        max_output_chars: longer output loses its middle.
        configured: makes the tool with a recipe's options (``@configurable``); None where it takes none.
        needs: options that a recipe must give.
    """

    __agentfly_kind__ = "tools"
    configured: Callable[..., CallableTool] | None = None
    needs: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        description: str,
        *,
        timeout: float | None,
        max_concurrency: int | None,
        exclusive: bool,
        max_output_chars: int,
    ) -> None:
        if not name or len(name) > 64 or not all(c.isascii() and (c.isalnum() or c in "_-.") for c in name):
            raise UsageError(f"{name!r} is no name for a tool: 1 to 64 ASCII letters, digits, '_', '-' or '.'")
        for what, number in (
            ("timeout", timeout),
            ("max_concurrency", max_concurrency),
            ("max_output_chars", max_output_chars),
        ):
            if number is not None and not number > 0:
                raise UsageError(f"tool {name!r}: {what} must be greater than 0, got {number}")
        self.name = name
        self.description = description
        self.timeout = timeout
        self.max_concurrency = max_concurrency
        self.exclusive = exclusive
        self.max_output_chars = max_output_chars
        self._limit = Limit(max_concurrency) if max_concurrency else None

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self._arguments().schema

    def schema(self) -> ToolSchema:
        """What the model is shown."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def check_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The validated arguments.

        Raises:
            InvalidArguments: with a text from which the model can correct itself.
        """
        return self._arguments().check(arguments)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Run it. Every failure is an outcome but for one that the model has no part in.

        Raises:
            ResourceError: the function did; what it needs could not be had.
        """
        started = time.monotonic()
        try:
            checked = self.check_arguments(arguments)
            value = await self._run(self._prepare(checked, context), context.timeout)
            result = to_result(value, self.max_output_chars)
        except InvalidArguments as error:
            return self._failure(ToolStatus.INVALID_ARGUMENTS, str(error), started)
        except CallTimedOut as error:
            return self._failure(ToolStatus.TIMED_OUT, f"Error: {self.name} timed out: {error}.", started)
        except CallFailed as error:
            if isinstance(error.error, ResourceError):
                raise error.error from None
            return self._failure(ToolStatus.FAILED, f"Error: {error}", started)
        except Exception as error:
            return self._failure(ToolStatus.FAILED, f"Error: {describe_error(error)}", started)
        return ToolOutcome(
            name=self.name,
            status=ToolStatus.FAILED if result.error else ToolStatus.OK,
            content=result.content,
            seconds=time.monotonic() - started,
            final=result.final,
            metrics=result.metrics,
        )

    async def _run(self, function: Callable[[], Any], fallback: float | None) -> Any:
        timeout = self.timeout or fallback or DEFAULT_TIMEOUT
        if self._limit is None:
            return await invoke(function, timeout=timeout)
        async with self._limit:
            return await invoke(function, timeout=timeout)

    def _failure(self, status: ToolStatus, text: str, started: float) -> ToolOutcome:
        return ToolOutcome(self.name, status, cut(text, self.max_output_chars), time.monotonic() - started)

    @abstractmethod
    def _arguments(self) -> Arguments:
        """What the tool takes."""

    @abstractmethod
    def _prepare(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """The call, ready to be made."""
