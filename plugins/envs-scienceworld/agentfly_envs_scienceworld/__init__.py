"""ScienceWorld: science experiments in text, played by the real simulator, one Java process an environment."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_environments(register: Register[Any]) -> None:
    register(
        "agentfly_envs_scienceworld.environment:ScienceWorld",
        name="scienceworld",
        summary="Science experiments in text: 30 tasks, from boiling water to genetics.",
    )
