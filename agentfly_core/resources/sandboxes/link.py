"""The host's end of a sandbox's stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import threading
from collections.abc import Mapping
from typing import Any

from agentfly_core.resources.sandboxes.inside import frames
from agentfly_core.resources.sandboxes.io_thread import io_loop
from agentfly_core.resources.sandboxes.remote import RemoteProcess
from agentfly_core.types import ResourceError


class Link(asyncio.Protocol):
    """Sends frames to a supervisor and hands its frames to the processes they are for.

    Lives on the I/O loop; ``start``, ``send`` and ``clear`` may be called from any thread.
    """

    def __init__(self) -> None:
        self.ready: concurrent.futures.Future[Mapping[str, Any]] = concurrent.futures.Future()
        self.lost = ""
        self._transport: asyncio.Transport | None = None
        self._parser = frames.Parser()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._processes: dict[int, RemoteProcess] = {}
        self._clearing: dict[int, concurrent.futures.Future[bool]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            for kind, channel, payload in self._parser.feed(data):
                self._dispatch(kind, channel, payload)
        except (ValueError, TypeError) as error:
            self.lose(f"its supervisor sent what cannot be understood: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.lose(f"its stream broke: {exc}" if exc else "its supervisor ended")

    def start(self, request: Mapping[str, Any]) -> RemoteProcess:
        """Start a command.

        Raises:
            ResourceError: the sandbox is gone.
            ValueError: the command and its environment are larger than a frame may be.
        """
        message = json.dumps(request).encode()
        if len(message) > frames.LIMIT:
            raise ValueError(f"a command of {len(message)} bytes, arguments and environment together, is too large")
        with self._lock:
            self.refuse_if_lost()
            number = next(self._numbers)
            process = RemoteProcess(lambda kind, payload: self.send(kind, number, payload))
            self._processes[number] = process
        self.send(frames.START, number, message)
        return process

    def clear(self) -> concurrent.futures.Future[bool]:
        """End all commands and wipe the folders; resolves to whether nothing is left."""
        done: concurrent.futures.Future[bool] = concurrent.futures.Future()
        with self._lock:
            self.refuse_if_lost()
            number = next(self._numbers)
            self._clearing[number] = done
        self.send(frames.CLEAR, number)
        return done

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Send a frame; one to a sandbox that is gone is dropped."""
        io_loop().call_soon_threadsafe(self.write, frames.frame(kind, channel, payload))

    def write(self, data: bytes) -> None:
        """On the loop: send bytes as they are."""
        if self._transport is not None and not self.lost:
            self._transport.write(data)

    def close(self, reason: str) -> None:
        """On the loop: end the stream, which ends the supervisor."""
        self.lose(reason)

    def refuse_if_lost(self) -> None:
        """Raise if the sandbox is gone.

        Raises:
            ResourceError: it is.
        """
        if self.lost:
            raise ResourceError(f"the sandbox is gone: {self.lost}")

    def lose(self, reason: str) -> None:
        """On the loop: take nothing more; everybody who waits is told. The first reason stays."""
        with self._lock:
            if self.lost:
                return
            self.lost = reason
            processes, self._processes = list(self._processes.values()), {}
            clearing, self._clearing = list(self._clearing.values()), {}
        if self._transport is not None:
            self._transport.abort()
        if _awaited(self.ready):
            self.ready.set_exception(ResourceError(f"the sandbox is gone: {reason}"))
        for process in processes:
            process.lose(reason)
        for done in clearing:
            if _awaited(done):
                done.set_result(False)

    def _dispatch(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == frames.READY:
            ready = json.loads(payload)
            if _awaited(self.ready):
                self.ready.set_result(ready)
        elif kind == frames.CLEARED:
            with self._lock:
                done = self._clearing.pop(channel, None)
            if done is not None and _awaited(done):
                done.set_result(payload == b"true")
        else:
            with self._lock:
                process = self._processes.get(channel)
                if kind == frames.END:
                    self._processes.pop(channel, None)
            if process is not None:
                process.deliver(kind, payload)


def _awaited(future: concurrent.futures.Future[Any]) -> bool:
    """Whether it is open still: whoever waited may have run out of time or been cancelled. If so it can be set now."""
    return not future.done() and future.set_running_or_notify_cancel()
