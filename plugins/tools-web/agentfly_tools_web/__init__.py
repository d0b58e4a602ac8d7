"""Searching the web, reading pages, and retrieving from a local corpus."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_tools(register: Register[Any]) -> None:
    register("agentfly_tools_web.retrieve:retrieve", name="retrieve", summary="Search a local corpus.")
