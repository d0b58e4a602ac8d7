"""What an engine refuses to be built from."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.types import Tool, UsageError


def check_limits(**limits: float | None) -> None:
    """Refuse a limit that is not positive; None is no limit.

    Raises:
        UsageError: naming it.
    """
    for name, limit in limits.items():
        if limit is not None and not limit > 0:
            raise UsageError(f"{name} must be greater than 0, got {limit}")


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools by name.

    Raises:
        UsageError: two of them have one name.
    """
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in by_name:
            raise UsageError(f"two tools are named {tool.name!r}: rename one")
        by_name[tool.name] = tool
    return by_name
