"""One connection to Redis that sends what came together in one go, and comes back after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agentfly_core.types import MissingDependency, ResourceError, UsageError

log = logging.getLogger("agentfly.resources")

FORGOTTEN = "FORGOTTEN"
"""How a script's error begins whose epoch is not the server's: the data were deleted, and perhaps begun anew."""
LOST = (FORGOTTEN, "NOSCRIPT", "No matching script")

BATCH = 128
"""Operations sent before their replies are read."""
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between attempts to connect; the last one over and over."""

Command = tuple[Any, ...]
Execute = Callable[[list[Command]], Awaitable[list[Any]]]


class RedisLink:
    """Runs Lua scripts, in the order of the calls. Everything on one event loop.

    Every operation may be sent twice, should a connection break before its reply: a script must not mind.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``, with password and database.
        scripts: name -> Lua.
        hello: called on each new connection before anything else is sent, with a way to send commands; returns the
            epoch of the server's data, which every later script is given, to say ``FORGOTTEN`` if it is another.
        timeout: seconds that connecting and each reply may take.
        outage: seconds for which an established connection may be gone before calls fail.
    """

    def __init__(
        self,
        url: str,
        scripts: dict[str, str],
        hello: Callable[[Execute], Awaitable[str]],
        *,
        timeout: float = 5.0,
        outage: float = 30.0,
    ) -> None:
        self._redis = _import_redis()
        self._url = url
        self._scripts = scripts
        self._shas = {name: hashlib.sha1(text.encode()).hexdigest() for name, text in scripts.items()}
        self._hello = hello
        self._outage = outage
        retry = self._redis.asyncio.retry.Retry(self._redis.backoff.NoBackoff(), 0)
        self._options = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry, "protocol": 2}
        try:
            self._pool = self._redis.asyncio.ConnectionPool.from_url(url, **self._options)
        except ValueError as error:
            hint = "; signs like / and @ in a password are written %2F and %40" if "@" in url else f": {error}"
            raise UsageError(f"{shown(url)} is no address of a Redis server{hint}") from error
        self._connection: Any = None
        self._reached = False
        self._epoch = ""
        self._queue: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def run(self, name: str, *arguments: Any) -> Any:
        """The result of a script.

        Raises:
            ResourceError: the server cannot be reached, or refuses.
        """
        return await self.send("RUN", name, *arguments)

    async def send(self, *command: Any) -> Any:
        """The reply to any command."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((command, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._work())
        return await future

    async def listen(self, channel: str, heard: Callable[[bytes], None]) -> None:
        """Call ``heard`` with each message of a channel; those sent during a failure are missed. Never ends."""
        while True:
            client = self._redis.asyncio.Redis.from_url(self._url, **{**self._options, "socket_timeout": None})
            try:
                async with client.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(channel)
                    async for message in subscription.listen():
                        heard(message["data"])
            except (self._redis.RedisError, OSError) as error:
                log.debug("the channel %s is lost: %s", channel, error)
            finally:
                with contextlib.suppress(Exception):
                    await client.aclose()
            await asyncio.sleep(PAUSES[-1])

    async def close(self) -> None:
        """Disconnect. What waits for a reply fails."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        self._fail(ResourceError("the connection to Redis was closed"))
        await self._disconnect()

    async def _work(self) -> None:
        """Send what is queued until nothing is."""
        broken_since, attempt = 0.0, 0
        while self._queue:
            try:
                await self._exchange()
                broken_since, attempt = 0.0, 0
            except (self._redis.ConnectionError, self._redis.TimeoutError, OSError, asyncio.TimeoutError) as error:
                await self._disconnect()
                now = time.monotonic()
                broken_since = broken_since or now
                refused = isinstance(error, self._redis.AuthenticationError)
                if refused or not self._reached or now - broken_since >= self._outage:
                    self._fail(self._unreachable(error))
                    return
                if attempt == 0:
                    log.warning("the connection to %s broke, trying again: %s", shown(self._url), error)
                await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
                attempt += 1
            except Exception as error:
                await self._disconnect()
                self._fail(error if isinstance(error, UsageError) else self._unreachable(error))
                return

    async def _exchange(self) -> None:
        if self._connection is None:
            await self._connect()
        batch = [self._queue[i] for i in range(min(BATCH, len(self._queue)))]
        replies = await self._execute([command for command, _ in batch], self._epoch)
        if any(isinstance(r, self._redis.ResponseError) and str(r).startswith(LOST) for r in replies):
            raise self._redis.ConnectionError("the server has lost what it was told")
        for reply, (_, future) in zip(replies, batch, strict=True):
            self._queue.popleft()
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(ResourceError(f"the Redis server at {shown(self._url)} refuses: {reply}"))
            else:
                future.set_result(reply)

    async def _connect(self) -> None:
        self._connection = self._pool.make_connection()
        await self._connection.connect()
        for reply in await self._execute([("SCRIPT", "LOAD", text) for text in self._scripts.values()]):
            if isinstance(reply, Exception):
                raise reply
        self._epoch = await self._hello(self._execute)
        self._reached = True

    async def _execute(self, commands: list[Command], epoch: str = "") -> list[Any]:
        """Replies, an error reply as the exception. A connection that breaks raises."""
        named = [("EVALSHA", self._shas[c[1]], 1, c[2], epoch, *c[3:]) if c[0] == "RUN" else c for c in commands]
        await self._connection.send_packed_command(self._connection.pack_commands(named))
        return [await self._reply() for _ in named]

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except self._redis.ResponseError as error:
            return error

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.disconnect()

    def _fail(self, error: Exception) -> None:
        """Whatever is queued fails."""
        queued: Iterable[asyncio.Future[Any]] = [future for _, future in self._queue]
        self._queue.clear()
        for future in queued:
            if not future.done():
                future.set_exception(error)

    def _unreachable(self, error: Exception) -> ResourceError:
        return ResourceError(
            f"the coordinator at {shown(self._url)} cannot be reached: {str(error) or type(error).__name__}. "
            "Does a Redis server run there, and are address, password and TLS (rediss://) right?"
        )


def shown(url: str) -> str:
    """A URL without its password, also where that holds signs that a URL should not."""
    return re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", re.sub(r"(password=)[^&]*", r"\1***", url))


def _import_redis() -> Any:
    try:
        import redis
        import redis.asyncio
        import redis.asyncio.retry
        import redis.backoff
        import redis.exceptions
    except ImportError as error:
        raise MissingDependency("redis", "the Redis coordinator", "agentfly-core[redis]") from error
    return redis
