"""robots.txt (RFC 9309)."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from yarl import URL

from agentfly_tools_web.fetching.errors import FetchError, TooLarge
from agentfly_tools_web.fetching.settings import Reply, Request
from agentfly_tools_web.fetching.sharing import Together

if TYPE_CHECKING:
    from protego import Protego

MAX_BYTES = 500_000
MAX_DELAY = 10.0
"""Seconds between requests that a site may ask for; more is cut to this."""

_KEPT_SECONDS = 3600.0
_FAILURE_KEPT_SECONDS = 60.0
_MAX_SITES = 4096


class Robots:
    """The rules of each site, asked for once an hour.

    Args:
        fetch: gets a request's reply without asking for any rules; raises ``FetchError``.
    """

    def __init__(self, fetch: Callable[[Request], Awaitable[Reply]], user_agent: str) -> None:
        self._fetch = fetch
        self._user_agent = user_agent
        self._rules: dict[URL, tuple[float, Protego | None]] = {}
        self._lock = threading.Lock()
        self._together: Together[Protego | None] = Together()

    async def check(self, url: URL) -> float:
        """Seconds that the site wants between requests.

        Raises:
            FetchError: the site does not want the page to be fetched, or its rules cannot be had.
        """
        rules = await self._of(url.origin())
        if rules is None:
            raise FetchError(
                f"the rules of {url.host} (robots.txt) cannot be read, so it is not fetched", transient=True
            )
        if not rules.can_fetch(str(url), self._user_agent):
            raise FetchError(f"{url.host} does not allow this page to be fetched by programs (robots.txt)")
        return min(rules.crawl_delay(self._user_agent) or 0.0, MAX_DELAY)

    async def _of(self, site: URL) -> Protego | None:
        with self._lock:
            until, rules = self._rules.get(site, (0.0, None))
        if time.monotonic() < until:
            return rules
        return await self._together.do(site, lambda: self._ask(site))

    async def _ask(self, site: URL) -> Protego | None:
        """The site's rules: none where there is no such file, and None where that cannot be known."""
        from protego import Protego

        try:
            reply = await self._fetch(Request(str(site / "robots.txt")))
            text = reply.body[:MAX_BYTES].decode("utf-8", "replace") if reply.status < 300 else ""
            rules = None if reply.status >= 500 else Protego.parse(text)
        except FetchError as error:
            if not error.transient and not isinstance(error, TooLarge):
                raise
            rules = None
        with self._lock:
            if len(self._rules) >= _MAX_SITES:
                self._rules.clear()
            kept = _FAILURE_KEPT_SECONDS if rules is None else _KEPT_SECONDS
            self._rules[site] = (time.monotonic() + kept, rules)
        return rules
