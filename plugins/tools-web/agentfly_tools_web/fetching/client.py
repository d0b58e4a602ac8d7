"""The client: redirects, retries, pacing, robots.txt and recording around single exchanges."""

from __future__ import annotations

import asyncio
import email.utils
import functools
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from yarl import URL

from agentfly_core.types import UsageError
from agentfly_tools_web.fetching.addresses import allows
from agentfly_tools_web.fetching.errors import FetchError
from agentfly_tools_web.fetching.exchange import Answer, exchange
from agentfly_tools_web.fetching.pacing import Pacer
from agentfly_tools_web.fetching.recording import Recording
from agentfly_tools_web.fetching.robots import Robots
from agentfly_tools_web.fetching.settings import HttpOptions, Mode, Reply, Request
from agentfly_tools_web.fetching.sharing import Together

_RETRIED = frozenset({429, 500, 502, 503, 504})
LONGEST_PAUSE = 60.0
"""Seconds for which a server's Retry-After keeps everybody away at most."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class WebClient:
    """Fetches for all chains of a process, from any thread and event loop.

    Args:
        cache: folder of the recording; needed by the modes ``record`` and ``replay``.

    Raises:
        UsageError: the mode lacks its folder, or cannot write into it.
    """

    def __init__(self, options: HttpOptions | None = None, *, cache: Path | None = None, mode: Mode = "live") -> None:
        if mode != "live" and cache is None:
            raise UsageError(f"the mode {mode!r} of the web tools needs the option 'cache', a folder")
        if mode == "replay" and cache is not None and not cache.is_dir():
            raise UsageError(f"there is no recording {cache} to replay; make one with the mode 'record'")
        self.options = options or HttpOptions()
        self._mode = mode
        self._recording = Recording(cache) if cache is not None and mode != "live" else None
        if self._recording is not None and mode == "record":
            self._recording.prepare()
        self._pacer = Pacer(1 / self.options.requests_per_second)
        self._robots = Robots(lambda request: self._recorded(request, robots=False), self.options.user_agent)
        self._together: Together[Reply] = Together()

    async def fetch(self, request: Request) -> Reply:
        """The reply to a request, whatever its status. Who asks for the same meanwhile gets the same.

        Raises:
            FetchError: there is none; the text is for the model.
            ResourceError: the recording cannot be read or written.
        """
        return await self._recorded(request, robots=self.options.robots and not request.api)

    async def _recorded(self, request: Request, *, robots: bool) -> Reply:
        request = _normal(request)
        key = (request.url, request.body, robots)
        return await self._together.do(key, lambda: self._once(request, robots=robots))

    async def _once(self, request: Request, *, robots: bool) -> Reply:
        if self._recording is None:
            return await self._bounded(request, robots=robots)
        found = await asyncio.to_thread(self._recording.read, request)
        if found is None and self._mode == "replay":
            raise FetchError("it is not in the recording that is being replayed")
        if isinstance(found, FetchError) and self._mode == "replay":
            raise found
        if isinstance(found, Reply) and (self._mode == "replay" or found.status not in _RETRIED):
            return found
        result: Reply | FetchError
        try:
            result = await self._bounded(request, robots=robots)
        except FetchError as error:
            result = error
        await asyncio.to_thread(self._recording.write, request, result)
        if isinstance(result, FetchError):
            raise result
        return result

    async def _bounded(self, request: Request, *, robots: bool) -> Reply:
        seconds = self.options.timeout
        try:
            return await asyncio.wait_for(self._follow(request, time.monotonic() + seconds, robots=robots), seconds)
        except asyncio.TimeoutError as error:
            raise FetchError(f"it was not there after {seconds:g} s", transient=True) from error

    async def _follow(self, request: Request, deadline: float, *, robots: bool) -> Reply:
        """Follow redirects; every step is checked like the first."""
        url = URL(request.url)
        for _ in range(self.options.max_redirects + 1):
            delay = await self._robots.check(url) if robots else 0.0
            answer = await self._persist(url, request, deadline, delay)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                return Reply(str(url), answer.status, answer.headers.get("Content-Type", ""), answer.body)
            if request.body is not None:
                raise FetchError(f"{url.host} answers with a redirect, which a search does not follow")
            url = _target(url, location)
        raise FetchError(f"it leads through more than {self.options.max_redirects} redirects")

    async def _persist(self, url: URL, request: Request, deadline: float, delay: float) -> Answer:
        """Send until there is a usable answer, nothing more to try, or no time left to wait."""
        for attempt in range(self.options.retries + 1):
            pause = self.options.backoff * 2**attempt
            last = attempt == self.options.retries
            try:
                answer = await self._send(url, request, deadline, delay)
            except FetchError as error:
                if last or not error.transient or time.monotonic() + pause > deadline:
                    raise
            else:
                if answer.status not in _RETRIED:
                    return answer
                asked = _retry_after(answer.headers)
                if asked:
                    self._pacer.hold(url.authority, min(asked, LONGEST_PAUSE))
                    pause = asked
                if last or time.monotonic() + pause > deadline:
                    return answer
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, url: URL, request: Request, deadline: float, delay: float) -> Answer:
        left = deadline - time.monotonic()
        if not await self._pacer.wait(url.authority, interval=delay, at_most=left):
            raise FetchError(
                f"{url.host} has asked for a pause, or too many requests to it are waiting; try another site or later"
            )
        host, port = url.host or "", url.port or 0
        same = url.authority == URL(request.url).authority
        private = (request.api and same) or allows(self.options.allow_hosts, host, port)
        return await exchange(url, request, self.options, private_allowed=private)


@functools.lru_cache(maxsize=32)
def shared_client(options: HttpOptions, cache: Path | None, mode: Mode) -> WebClient:
    """The process's one client with these settings: all tools and chains share its pace and its rules."""
    return WebClient(options, cache=cache, mode=mode)


def _normal(request: Request) -> Request:
    """With an address that is whole, without fragment: ``example.org/a#b`` becomes ``https://example.org/a``."""
    text = request.url.strip()
    if "://" not in text:
        text = f"https://{text}"
    url = _checked(text, request.url)
    return Request(str(url.with_fragment(None)), request.headers, request.body, request.api)


def _target(url: URL, location: str) -> URL:
    try:
        joined = str(url.join(URL(location)))
    except ValueError as error:
        raise FetchError(f"it redirects to {location!r:.200}, which is no address") from error
    return _checked(joined, location).with_fragment(None)


def _checked(text: str, written: str) -> URL:
    try:
        url = URL(text)
        port = url.port
    except ValueError as error:
        raise FetchError(f"{written!r:.200} is no web address ({error})") from error
    if url.scheme not in ("http", "https") or not url.host or port is None:
        raise FetchError(f"{written!r:.200} is no web address: it must begin with http:// or https://")
    if url.user is not None or url.password is not None:
        raise FetchError(f"{url.host}: addresses with a user name or password are not fetched")
    return url


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait; 0 where it does not, or in no known form."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max((moment - datetime.now(timezone.utc)).total_seconds(), 0.0)
