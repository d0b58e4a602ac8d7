"""Chat templates of the Qwen models."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_templates(register: Register[Any]) -> None:
    at = "agentfly_templates_qwen.families"
    register(f"{at}:QWEN25", name="qwen2.5", summary="Qwen2.5 Instruct.")
    register(f"{at}:QWEN3", name="qwen3", summary="Qwen3, with thinking or (thinking: false) without.")
    register(f"{at}:QWEN3_INSTRUCT_2507", name="qwen3-instruct-2507", summary="Qwen3 Instruct 2507, no thinking.")
