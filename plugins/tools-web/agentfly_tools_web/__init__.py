"""Searching the web, reading pages, and retrieving from a local corpus."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_tools(register: Register[Any]) -> None:
    register("agentfly_tools_web.search:web_search", name="web_search", summary="Search the web.")
    register("agentfly_tools_web.browse:fetch_page", name="fetch_page", summary="Read a web page, part by part.")
    register("agentfly_tools_web.browse:find_in_page", name="find_in_page", summary="Find a text in a web page.")
    register("agentfly_tools_web.retrieve:retrieve", name="retrieve", summary="Search a local corpus.")


@hookimpl
def register_rewards(register: Register[Any]) -> None:
    at = "agentfly_tools_web.qa"
    register(f"{at}:qa_exact_match", name="qa_exact_match", summary="1 if the answer is a golden one.")
    register(f"{at}:qa_f1", name="qa_f1", summary="F1 of the answer's words.")
    register(f"{at}:qa_cover_match", name="qa_cover_match", summary="1 if the answer holds a golden one.")


@hookimpl
def register_agents(register: Register[Any]) -> None:
    register("agentfly_tools_web.search_r1:SearchR1Agent", name="search-r1", summary="Searches within its answer.")
