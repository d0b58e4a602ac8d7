"""The tool ``web_search`` and where its results come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from agentfly_core.tools import CallableTool, configurable, tool
from agentfly_core.types import ToolResult, UsageError
from agentfly_tools_web.fetching import FetchError, HttpOptions, Mode, shared_client
from agentfly_tools_web.providers import SearchResult, make_provider
from agentfly_tools_web.retrieve import shorten

MAX_K = 20
SNIPPET_CHARS = 400


@configurable(needs=("provider",))
def web_search(
    *,
    provider: str | None = None,
    url: str | None = None,
    index: Path | None = None,
    key_variable: str | None = None,
    k: int = 5,
    cache: Path | None = None,
    mode: Mode = "live",
    http: HttpOptions = HttpOptions(),  # noqa: B008 (it is immutable)
) -> CallableTool:
    """Options: who searches and what that one needs, how many results by default, recording, the HTTP client's.

    ``provider`` is ``local`` (needs ``index``), ``searxng`` (needs ``url``), ``serper`` (its key stands in the
    environment variable ``key_variable``), or the import path ``module:attribute`` of a factory of one's own.
    """
    if not 1 <= k <= MAX_K:
        raise UsageError(f"tool 'web_search': k must be from 1 to {MAX_K}")
    client = shared_client(http, cache, mode)
    search = (
        None
        if provider is None
        else make_provider(provider, url=url, index=index, key_variable=key_variable, replaying=mode == "replay")
    )

    @tool(timeout=http.timeout + 5)
    async def web_search(query: str, k: Annotated[int, Field(ge=1, le=MAX_K)] = k) -> ToolResult:
        """Search the web. Gives titles, addresses and the beginnings of texts.

        Args:
            query: What to look for.
            k: How many results to return.
        """
        if search is None:
            raise UsageError("the tool 'web_search' needs the option 'provider'")
        if not query.strip():
            return ToolResult("Error: the query is empty.", error=True)
        try:
            results = await search(query, k, client)
        except FetchError as error:
            return ToolResult(f"Error: the search failed: {error}.", error=True)
        return ToolResult(show_results(results[:k]))

    return web_search


def show_results(results: list[SearchResult]) -> str:
    """Numbered results for a model."""
    if not results:
        return "Nothing was found. Try other words."
    blocks = []
    for number, result in enumerate(results, 1):
        lines = [f"[{number}] {result.title}", result.url, shorten(" ".join(result.snippet.split()), SNIPPET_CHARS)]
        blocks.append("\n".join(line for line in lines if line))
    return "\n\n".join(blocks)
