"""What the sandboxed tools have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from agentfly_core.tools import FunctionTool
from agentfly_core.types import ResourceSpec, ToolContext, UsageError
from agentfly_tools_code.sandboxes import read_spec

DEFAULT_SECONDS = 30.0
BACKSTOP_SECONDS = 3600.0
"""For a whole call, the wait for a free sandbox included. The time limit of the code is kept inside the sandbox."""
DEFAULT_MAX_OUTPUT = 8_000


class SandboxTool(FunctionTool, abc.ABC):
    """A tool that acts in the chain's sandbox.

    Args:
        function: what is called; its signature is the tool's.
        timeout: seconds that what runs inside may take; None takes the context's, or else 30 s.
        max_output: characters of a result that are kept.
        sandbox: options of ``sandbox_spec``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str,
        timeout: float | None = None,
        max_output: int = DEFAULT_MAX_OUTPUT,
        sandbox: Mapping[str, Any] | None = None,
        exclusive: bool = True,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise UsageError(f"tool {name!r}: timeout must be greater than 0, got {timeout}")
        if max_output < 200:
            raise UsageError(f"tool {name!r}: max_output must be at least 200, got {max_output}")
        self.spec: ResourceSpec = read_spec(sandbox)
        self.seconds = timeout
        self.max_output = max_output
        super().__init__(
            function,
            name=name,
            description=description,
            timeout=BACKSTOP_SECONDS,
            exclusive=exclusive,
            max_output_chars=max_output + 2_000,  # notes beside the output
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def limit(self, context: ToolContext) -> float:
        """Seconds that what runs inside may take."""
        return self.seconds or context.timeout or DEFAULT_SECONDS
