"""One request and its answer over a connection of its own, to an address that was checked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from agentfly_tools_web.fetching.addresses import is_public
from agentfly_tools_web.fetching.decoding import ACCEPT_ENCODING, Decoder
from agentfly_tools_web.fetching.errors import FetchError, TooLarge
from agentfly_tools_web.fetching.settings import HttpOptions, Request

_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What one server said. Header names may be written in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Refused(OSError):
    """An address that must not be connected to."""


@dataclass
class _Sockets:
    """Makes the sockets that aiohttp connects: the one place through which every connection goes.

    It sees the very address that is connected to, after all name resolution, so that no name, spelling of a number or
    change of a name's address between check and use leads past it.
    """

    private_allowed: bool
    refused: list[str] = field(default_factory=list)

    def __call__(self, info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self.private_allowed and not is_public(str(address[0])):
            self.refused.append(str(address[0]))
            raise _Refused(f"{address[0]} is no public address")
        return socket.socket(family, kind, protocol)


async def exchange(url: URL, request: Request, options: HttpOptions, *, private_allowed: bool) -> Answer:
    """Send ``request`` to ``url`` and read the whole answer; redirects are not followed.

    The caller bounds the time.

    Raises:
        FetchError: no answer, or none that can be used.
    """
    sockets = _Sockets(private_allowed)
    connector = aiohttp.TCPConnector(socket_factory=sockets, force_close=True, use_dns_cache=False)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout)
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        ) as session:
            return await _send(session, url, request, options)
    except aiohttp.InvalidURL as error:
        raise FetchError(f"{url.host!s:.200} is no name of a host") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise FetchError(f"the certificate of {url.host} is not valid: {error.certificate_error}") from error
    except aiohttp.ClientConnectorDNSError as error:
        raise FetchError(f"there is no host {url.host}", transient=_may_pass(error.os_error)) from error
    except aiohttp.ClientConnectorError as error:
        if sockets.refused:
            raise FetchError(f"{url.host} is at the private address {sockets.refused[0]}: not allowed") from error
        raise FetchError(f"{url.host} cannot be reached ({error.strerror or error})", transient=True) from error
    except asyncio.TimeoutError as error:
        raise FetchError(f"{url.host} cannot be reached (it does not answer)", transient=True) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise FetchError(f"the answer of {url.host} cannot be read ({reason:.150})", transient=True) from error


async def _send(session: aiohttp.ClientSession, url: URL, request: Request, options: HttpOptions) -> Answer:
    headers = {
        "User-Agent": options.user_agent,
        "Accept-Encoding": ACCEPT_ENCODING,
        "Accept": "*/*" if request.body else "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5",
        **({} if request.body is None else {"Content-Type": "application/json"}),
        **request.headers,
    }
    method = "GET" if request.body is None else "POST"
    data = None if request.body is None else request.body.encode()
    async with session.request(method, url, headers=headers, data=data, allow_redirects=False) as response:
        body = b"" if 300 <= response.status < 400 else await _read(response, options.max_bytes)
        return Answer(response.status, response.headers, body)


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if (response.content_length or 0) > limit:
        raise TooLarge(limit)
    decoder = Decoder(response.headers.get("Content-Encoding", ""), limit)
    received = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        received += len(chunk)
        if received > limit:
            raise TooLarge(limit)
        decoder.feed(chunk)
    return decoder.finish()


def _may_pass(error: BaseException) -> bool:
    """Whether looking the name up failed for a passing reason."""
    return getattr(error, "errno", None) == socket.EAI_AGAIN
