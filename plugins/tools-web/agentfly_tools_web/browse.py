"""The tools ``fetch_page`` and ``find_in_page``."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agentfly_core.tools import CallableTool, configurable, tool
from agentfly_core.types import ToolContext, ToolResult, UsageError
from agentfly_tools_web.fetching import FetchError, HttpOptions, Mode, Request, WebClient, shared_client
from agentfly_tools_web.pages import Page, PageReader
from agentfly_tools_web.retrieval import Index, open_index

SHOWN_LINKS = 50
SHOWN_MATCHES = 10
LOCAL = "doc:"
"""Begins the address of a passage of the local index: ``doc:17`` is its row 17."""

_READING_SECONDS = 30.0
_OPEN_PAGES = 16
_STATE = "agentfly_tools_web.pages"

_reader = PageReader()


class Browser:
    """Opens pages; a chain's page stays as it was when the chain first opened it."""

    def __init__(self, client: WebClient, index: Index | None) -> None:
        self._client = client
        self._index = index

    async def open(self, url: str, context: ToolContext) -> Page:
        """The page at an address.

        Raises:
            FetchError: it cannot be had.
        """
        opened: OrderedDict[str, Page] = context.state.setdefault(_STATE, OrderedDict())
        if url in opened:
            opened.move_to_end(url)
            return opened[url]
        page = self._passage(url) if url.startswith(LOCAL) else await self._fetched(url)
        opened[url] = page
        if len(opened) > _OPEN_PAGES:
            opened.popitem(last=False)
        return page

    async def _fetched(self, url: str) -> Page:
        reply = await self._client.fetch(Request(url))
        return await asyncio.to_thread(_reader.read, reply)

    def _passage(self, url: str) -> Page:
        number = url.removeprefix(LOCAL)
        known = number.isascii() and number.isdigit() and len(number) <= 18
        if self._index is None or not known or int(number) >= len(self._index):
            raise FetchError("there is no such document")
        passage = self._index.passage(int(number))
        return Page(url, passage.title, passage.text)


def _browser(index: Path | None, cache: Path | None, mode: Mode, http: HttpOptions) -> Browser:
    return Browser(shared_client(http, cache, mode), None if index is None else open_index(index))


@configurable
def fetch_page(
    *,
    page_chars: int = 6000,
    index: Path | None = None,
    cache: Path | None = None,
    mode: Mode = "live",
    http: HttpOptions = HttpOptions(),  # noqa: B008 (it is immutable)
) -> CallableTool:
    """Options: characters of a part; the index that ``doc:`` addresses lead into; recording; the HTTP client's."""
    if page_chars < 100:
        raise UsageError("tool 'fetch_page': page_chars must be at least 100")
    browser = _browser(index, cache, mode, http)

    @tool(timeout=http.timeout + _READING_SECONDS, max_output_chars=page_chars + 20_000)
    async def fetch_page(
        url: str, context: ToolContext, page: Annotated[int, Field(ge=1)] = 1, links: bool = False
    ) -> ToolResult:
        """Read a web page as text. Long pages come in parts.

        Args:
            url: The address of the page.
            page: Which part to read; the first is 1.
            links: Whether to list where the page's links lead.
        """
        try:
            opened = await browser.open(url, context)
        except FetchError as error:
            return _failure(url, error)
        parts = opened.parts(page_chars)
        if page > len(parts):
            return ToolResult(f"Error: the page has only {len(parts)} parts.", error=True)
        shown = parts[page - 1] or "(The page has no text.)"
        return ToolResult(_head(opened, page, len(parts)) + shown + (_links(opened) if links else ""))

    return fetch_page


@configurable
def find_in_page(
    *,
    page_chars: int = 6000,
    index: Path | None = None,
    cache: Path | None = None,
    mode: Mode = "live",
    http: HttpOptions = HttpOptions(),  # noqa: B008 (it is immutable)
) -> CallableTool:
    """Options: those of ``fetch_page``; give both the same."""
    browser = _browser(index, cache, mode, http)

    @tool(timeout=http.timeout + _READING_SECONDS)
    async def find_in_page(url: str, text: Annotated[str, Field(min_length=1)], context: ToolContext) -> ToolResult:
        """Find where a word or phrase stands in a web page. Upper and lower case are the same.

        Args:
            url: The address of the page.
            text: What to look for, exactly as it is written in the page.
        """
        try:
            opened = await browser.open(url, context)
        except FetchError as error:
            return _failure(url, error)
        return ToolResult(_matches(opened, text, page_chars))

    return find_in_page


def _failure(url: str, error: FetchError) -> ToolResult:
    return ToolResult(f"Error: {url:.500} could not be read: {error}.", error=True)


def _head(page: Page, number: int, count: int) -> str:
    lines = [f"Title: {page.title}"] if page.title else []
    lines.append(f"URL: {page.url}")
    if count > 1:
        lines.append(f"Part {number} of {count}")
    return "\n".join(lines) + "\n\n"


def _links(page: Page) -> str:
    if not page.links:
        return "\n\nThe page has no links."
    lines = [f"- {text}: {url}" for text, url in page.links[:SHOWN_LINKS]]
    if len(page.links) > SHOWN_LINKS:
        lines.append(f"(and {len(page.links) - SHOWN_LINKS} more)")
    return "\n\nLinks:\n" + "\n".join(lines)


def _matches(page: Page, text: str, page_chars: int, context_chars: int = 150) -> str:
    """Each place with some text around it and the part that it stands in."""
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())) or re.escape(text), re.IGNORECASE)
    lines, count = [], 0
    parts = page.parts(page_chars)
    for number, part in enumerate(parts, 1):
        for match in pattern.finditer(part):
            count += 1
            if count > SHOWN_MATCHES:
                continue
            around = part[max(match.start() - context_chars, 0) : match.end() + context_chars]
            where = f" (part {number})" if len(parts) > 1 else ""
            lines.append(f"{count}.{where} ...{' '.join(around.split())}...")
    if not count:
        return f"{text!r:.200} does not stand in the page."
    if count > SHOWN_MATCHES:
        lines.append(f"({count - SHOWN_MATCHES} more not shown)")
    return "\n".join(lines)
