from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from agentfly_tools_web.fetching import HttpOptions, WebClient

Handler = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: str
    """Address at which it came in."""


@dataclass
class Site:
    """A server on this machine that says byte for byte what a test wants, in a thread of its own."""

    port: int = 0
    pages: dict[str, Handler | bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when a connection was closed by the client before the handler was done."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def client(self, **options: Any) -> WebClient:
        """A client that may reach this site and does not wait."""
        where = {name: options.pop(name) for name in ("cache", "mode") if name in options}
        return WebClient(self.options(**options), **where)

    def options(self, **options: Any) -> HttpOptions:
        quick = {"allow_hosts": (self.host,), "requests_per_second": 1e6, "backoff": 0.01, "robots": False}
        return HttpOptions(**{**quick, **options})

    def page(self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8", *more: str) -> str:
        """Serve a body at a path; returns its address."""
        raw = body.encode() if isinstance(body, str) else body
        self.pages[path] = answer(raw, "200 OK", f"Content-Type: {kind}", *more)
        return self.url(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked = Asked(method, path, headers, body, writer.get_extra_info("sockname")[0])
            self.asked.append(asked)
            handler = self.pages.get(path, answer(b"no such page", "404 Not Found"))
            if isinstance(handler, bytes):
                writer.write(handler)
            else:
                await handler(asked, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.ended.set()
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def redirect(to: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, f"Location: {to}")


@pytest.fixture
def say() -> Any:
    """``say(body, status, *headers)`` makes a whole answer."""
    return answer


@pytest.fixture
def lead() -> Any:
    """``lead(address)`` makes a redirect."""
    return redirect


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on 127.0.0.1."""
    site = Site()
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(site.serve, ["127.0.0.1"], 0)
        site.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield site
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()
    assert not thread.is_alive()
