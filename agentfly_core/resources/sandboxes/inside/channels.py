"""A command's standard streams, as the supervisor sees them."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any

from agentfly_core.resources.sandboxes.inside import frames


class Channel:
    """Carries input to a process and its output to the host, neither faster than it is taken.

    Args:
        pipes: our ends of its standard input, output and (None where it joins the output) errors.
        send: sends a frame of (kind, channel, payload).
    """

    def __init__(
        self,
        number: int,
        pid: int,
        pipes: tuple[int, int, int | None],
        selector: selectors.BaseSelector,
        send: Callable[..., None],
    ) -> None:
        self.number = number
        self.pid = pid
        self._input: int | None = pipes[0]
        self._outputs = {pipes[1]: frames.OUTPUT}
        if pipes[2] is not None:
            self._outputs[pipes[2]] = frames.ERRORS
        self._selector = selector
        self._send = send
        self._pending = bytearray()
        self._accepted = 0
        self._closing = False
        self._room = frames.WINDOW
        self._finished: Callable[[], Any] | None = None
        for descriptor in pipes:
            if descriptor is not None:
                os.set_blocking(descriptor, False)
        self._listen()

    def feed(self, data: bytes) -> None:
        """Input from the host."""
        self._pending += data
        self._flush()

    def close_input(self) -> None:
        """End of the input, after what is pending."""
        self._closing = True
        self._flush()

    def taken(self, count: int) -> None:
        """The host's reader has taken so many bytes of output."""
        self._room += count
        if self._finished is not None:
            self._drain()
        else:
            self._listen()

    def exited(self, finished: Callable[[], Any]) -> None:
        """The process has ended: pass on what is left in its pipes, then call ``finished``."""
        self._finished = finished
        self._close_input()
        self._drain()

    def abandon(self) -> None:
        """Close everything; the host is told the end."""
        self._close_input()
        for descriptor in list(self._outputs):
            self._close_output(descriptor)
        self._send(frames.END, self.number)

    def _flush(self) -> None:
        if self._input is None:
            self._pending.clear()
            return
        try:
            while self._pending:
                written = os.write(self._input, self._pending[: frames.CHUNK])
                del self._pending[:written]
                self._accepted += written
                if self._accepted >= frames.CREDIT:
                    self._send(frames.ACCEPTED, self.number, self._accepted.to_bytes(4, "big"))
                    self._accepted = 0
        except BlockingIOError:
            if self._input not in self._selector.get_map():
                self._selector.register(self._input, selectors.EVENT_WRITE, self._flush)
            return
        except OSError:  # it closed its input
            self._close_input()
            return
        if self._closing:
            self._close_input()
        elif self._input in self._selector.get_map():
            self._selector.unregister(self._input)

    def _close_input(self) -> None:
        if self._input is None:
            return
        if self._input in self._selector.get_map():
            self._selector.unregister(self._input)
        os.close(self._input)
        self._input = None
        self._pending.clear()
        self._send(frames.BROKEN, self.number)

    def _listen(self) -> None:
        """Read while the host's window is open, and only then."""
        for descriptor in self._outputs:
            known = descriptor in self._selector.get_map()
            if self._room > 0 and not known:
                self._selector.register(descriptor, selectors.EVENT_READ, lambda d=descriptor: self._forward(d))
            elif self._room <= 0 and known:
                self._selector.unregister(descriptor)

    def _forward(self, descriptor: int) -> bool:
        """Pass one chunk on; False if there is none now."""
        if descriptor not in self._outputs or self._room <= 0:
            return False  # closed, or the window filled, by another event of the same round
        try:
            data = os.read(descriptor, min(frames.CHUNK, self._room))
        except BlockingIOError:
            return False
        if not data:
            self._close_output(descriptor)
            return False
        self._room -= len(data)
        self._send(self._outputs[descriptor], self.number, data)
        if self._finished is None:
            self._listen()
        return True

    def _drain(self) -> None:
        """After its end: what is in the pipes now; what its descendants write later is lost."""
        for descriptor in list(self._outputs):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
            while self._room > 0 and self._forward(descriptor):
                pass
            if self._room > 0 and descriptor in self._outputs:
                self._close_output(descriptor)
        if not self._outputs and self._finished is not None:
            self._send(frames.END, self.number)
            self._finished()
            self._finished = None

    def _close_output(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._outputs[descriptor]
