"""The tool with which a model ends its work."""

from __future__ import annotations

from agentfly_core.tools.function import tool
from agentfly_core.types.tools import ToolResult


@tool
def answer(answer: str | int | float) -> ToolResult:
    """Give the final answer and stop.

    Args:
        answer: The final answer, without explanation.
    """
    return ToolResult(str(answer), final=True)
