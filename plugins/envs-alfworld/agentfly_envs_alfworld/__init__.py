"""ALFWorld: household tasks in text, played by the real TextWorld engine in worker processes."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_environments(register: Register[Any]) -> None:
    register(
        "agentfly_envs_alfworld.environment:ALFWorld",
        name="alfworld",
        summary="Household tasks in text: find, carry, clean, heat, cool, look at things.",
    )
