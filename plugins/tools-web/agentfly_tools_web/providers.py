"""Who answers a search."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from agentfly_core.registry import import_target
from agentfly_core.types import UnknownName, UsageError
from agentfly_tools_web.fetching import FetchError, Request, WebClient
from agentfly_tools_web.retrieval import open_index

SERPER = "https://google.serper.dev/search"
SERPER_KEY = "SERPER_API_KEY"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found."""

    title: str
    url: str
    snippet: str


class SearchProvider(Protocol):
    """Searches. Every request goes through the client, which records it."""

    def __call__(self, query: str, k: int, client: WebClient) -> Awaitable[list[SearchResult]]:
        """At most about ``k`` results, best first.

        Raises:
            FetchError: it failed; the text is for the model.
        """
        ...


def make_provider(
    name: str, *, url: str | None, index: Path | None, key_variable: str | None, replaying: bool
) -> SearchProvider:
    """The provider of this name.

    Args:
        replaying: nothing is really asked, so no key is needed.

    Raises:
        UsageError: there is none, or it lacks an option or its key.
    """
    if name == "local":
        if index is None:
            raise UsageError("tool 'web_search': the provider 'local' needs the option 'index'")
        return local(index)
    if name == "searxng":
        if not url:
            raise UsageError("tool 'web_search': the provider 'searxng' needs the option 'url', its address")
        return searxng(url)
    if name == "serper":
        return serper(url or SERPER, key_variable or SERPER_KEY, replaying=replaying)
    if ":" in name:
        try:
            factory: Callable[..., SearchProvider] = import_target(name)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"tool 'web_search': the provider {name!r} cannot be imported: {error}") from error
        return factory(url=url, index=index, key_variable=key_variable)
    raise UnknownName("search provider", name, ["local", "searxng", "serper"])


def local(index: Path) -> SearchProvider:
    """The local index. Passages without an address of their own are found at ``doc:ROW``, which fetch_page reads."""
    opened = open_index(index)

    async def search(query: str, k: int, client: WebClient) -> list[SearchResult]:
        found = await asyncio.to_thread(opened.search, query, k)
        return [SearchResult(p.title, p.url or f"doc:{p.row}", p.text) for p in found]

    return search


def searxng(url: str) -> SearchProvider:
    """A SearXNG server whose settings allow the format ``json``. It may stand at a private address."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"tool 'web_search': url must begin with http:// or https://, got {url!r}")
    base = url.rstrip("/")

    async def search(query: str, k: int, client: WebClient) -> list[SearchResult]:
        asked = f"{base}/search?{urlencode({'q': query, 'format': 'json'})}"
        found = await _ask(client, Request(asked, {"Accept": "application/json"}, api=True))
        return _results(found.get("results", "none"), link="url", snippet="content")

    return search


def serper(url: str, variable: str, *, replaying: bool = False) -> SearchProvider:
    """serper.dev, with the key in an environment variable."""
    key = os.environ.get(variable, "")
    if not key and not replaying:
        raise UsageError(f"tool 'web_search': put the key of serper.dev into the environment variable {variable}")

    async def search(query: str, k: int, client: WebClient) -> list[SearchResult]:
        body = json.dumps({"q": query, "num": k}, ensure_ascii=False)
        found = await _ask(client, Request(url, {"X-API-KEY": key, "Accept": "application/json"}, body, api=True))
        return _results(found.get("organic", []), link="link", snippet="snippet")  # left out if nothing was found

    return search


async def _ask(client: WebClient, request: Request) -> Mapping[str, Any]:
    reply = await client.fetch(request)
    if reply.status in (401, 403):
        raise FetchError(f"the search service refuses ({reply.status}): its key or settings are wrong")
    if reply.status != 200:
        raise FetchError(f"the search service answers with status {reply.status}")
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise FetchError("the search service does not answer with JSON") from error
    if not isinstance(found, dict):
        raise FetchError("the search service does not answer with an object")
    return found


def _results(rows: Any, *, link: str, snippet: str) -> list[SearchResult]:
    """Rows that have an address, whatever else they lack.

    Raises:
        FetchError: they are no rows.
    """
    if not isinstance(rows, list):
        raise FetchError("the search service answers with something else than a list of results")
    found = []
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get(link), str):
            found.append(SearchResult(_plain(row.get("title")), row[link], _plain(row.get(snippet))))
    return found


def _plain(value: Any) -> str:
    return re.sub(r"</?(b|em|strong|span|mark)[^<>]{0,100}>", "", value) if isinstance(value, str) else ""
