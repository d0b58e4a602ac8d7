"""Ending a run on request: the first Ctrl-C or SIGTERM ends it after the step in hand, the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_CODE = 130


@contextlib.contextmanager
def stop_on_signal(at_once: Callable[[], str], message: str) -> Iterator[threading.Event]:
    """An event that the first signal sets. Works in the main thread only.

    Args:
        at_once: called before the process ends at the second signal, and says what is lost; must be quick.
        message: said on stderr at the first.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            try:
                say(at_once())
            finally:
                # Chains may be in any state and threads in any call: nothing that waits for them is "at once".
                os._exit(EXIT_CODE)
        stop.set()
        say(message)

    def say(text: str) -> None:
        os.write(sys.stderr.fileno(), f"\n{text}\n".encode())

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
