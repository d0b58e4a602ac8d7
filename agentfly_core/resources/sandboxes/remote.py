"""A command in a sandbox, as its host sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Callable

from agentfly_core.resources.sandboxes.inside import frames
from agentfly_core.types import ResourceError


class RemoteProcess:
    """The streams and the end of a command (``types.SandboxProcess``). Usable from any event loop.

    Args:
        send: sends a frame of (kind, payload) to its supervisor.
    """

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._output = bytearray()
        self._errors = bytearray()
        self._room = frames.WINDOW
        self._read = 0
        """Bytes taken of which the supervisor has not been told."""
        self._broken = False
        self._exit_code: int | None = None
        self._ended = False
        self._discard = False
        self._lost = ""

    async def write(self, data: bytes) -> None:
        """Send to its standard input; waits while the process does not read.

        Raises:
            BrokenPipeError: it has ended or closed its input.
            ResourceError: the sandbox is gone.
        """
        view = memoryview(data)
        while view:
            await self._until(lambda: self._broken or self._room > 0)
            with self._lock:
                if self._broken:
                    raise BrokenPipeError("the process has ended or closed its input")
                chunk = bytes(view[: min(self._room, frames.CHUNK)])
                self._room -= len(chunk)
            self._send(frames.INPUT, chunk)
            view = view[len(chunk) :]

    async def close_input(self) -> None:
        """Let it see the end of its standard input."""
        self._send(frames.CLOSE, b"")

    async def read(self, n: int = 65536) -> bytes:
        """At least one and at most ``n`` bytes of its standard output; ``b""`` at its end.

        Raises:
            ResourceError: the sandbox is gone.
        """
        await self._until(lambda: bool(self._output) or self._ended)
        with self._lock:
            data = bytes(self._output[:n])
            del self._output[:n]
        self._taken(len(data))
        return data

    async def take(self) -> tuple[bytes, bytes] | None:
        """What has come of its output and its errors, as soon as there is something; None at their end."""
        await self._until(lambda: bool(self._output or self._errors) or self._ended)
        with self._lock:
            if not self._output and not self._errors:
                return None
            data = bytes(self._output), bytes(self._errors)
            self._output.clear()
            self._errors.clear()
        self._taken(len(data[0]) + len(data[1]))
        return data

    async def kill(self) -> None:
        """Kill it and its process group; doing so after its end does nothing."""
        self.abandon(discard=False)

    def abandon(self, *, discard: bool = True) -> None:
        """Kill it; with ``discard`` nobody will read what it still writes. Callable from any thread."""
        with self._lock:
            self._discard = self._discard or discard
            size = len(self._output) + len(self._errors) if self._discard else 0
            if self._discard:
                self._output.clear()
                self._errors.clear()
        self._taken(size)
        self._send(frames.KILL, b"")

    async def wait(self) -> int:
        """Its exit code; negative: the signal that killed it.

        Raises:
            ResourceError: the sandbox is gone.
        """
        await self._until(lambda: self._exit_code is not None)
        assert self._exit_code is not None
        return self._exit_code

    def deliver(self, kind: int, payload: bytes) -> None:
        """A frame from the supervisor, on the I/O thread."""
        with self._lock:
            if kind in (frames.OUTPUT, frames.ERRORS) and not self._discard:
                buffer = self._output if kind == frames.OUTPUT else self._errors
                if len(buffer) + len(payload) > 2 * frames.WINDOW:
                    raise ValueError("more output than its window allows")
                buffer += payload
            elif kind == frames.ACCEPTED:
                self._room = min(frames.WINDOW, self._room + int.from_bytes(payload, "big"))
            elif kind == frames.BROKEN:
                self._broken = True
            elif kind == frames.EXIT:
                self._exit_code = int(json.loads(payload))
            elif kind == frames.END:
                self._ended = self._broken = True
                if self._exit_code is None:  # ended together with everything else
                    self._exit_code = -signal.SIGKILL
            discarded = len(payload) if self._discard and kind in (frames.OUTPUT, frames.ERRORS) else 0
        self._taken(discarded)
        self._wake()

    def lose(self, reason: str) -> None:
        """The sandbox is gone: whoever waits is told, on the I/O thread."""
        with self._lock:
            self._lost = reason
        self._wake()

    def _taken(self, count: int) -> None:
        with self._lock:
            self._read += count
            credit = self._read if self._read >= frames.CREDIT else 0
            self._read -= credit
        if credit:
            self._send(frames.TAKEN, credit.to_bytes(4, "big"))

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
                loop.call_soon_threadsafe(_resolve, future)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if condition():
                    return
                if self._lost:
                    raise ResourceError(f"the sandbox is gone: {self._lost}")
                loop = asyncio.get_running_loop()
                future: asyncio.Future[None] = loop.create_future()
                self._waiting.append((loop, future))
            await future


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
