"""Ending in good order when the process is told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from agentfly_core.resources.manager import ResourceManager

log = logging.getLogger("agentfly.resources")

LAST_SECONDS = 5.0
"""How long a main thread that does not react after the drain is waited for."""


@contextlib.contextmanager
def drain_on_sigterm(manager: ResourceManager, *, grace: float = 30.0) -> Iterator[None]:
    """While the block runs, SIGTERM lets leases end, stops every instance, and then ends the process.

    The first signal begins the drain: nothing more is leased, and what is leased has ``grace`` seconds to come back.
    The second ends the process at once. It does so by the signal, so that the exit status tells of it. A handler that
    the program set itself is left alone, and outside the main thread nothing is done.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    draining = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal draining
        if draining:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        draining = True
        threading.Thread(target=drain, name="agentfly-drain", daemon=True).start()

    def drain() -> None:
        try:
            asyncio.run(manager.drain(grace))
        except Exception:
            log.exception("the resources could not be drained")
        os.kill(os.getpid(), signal.SIGTERM)
        if not threading.Event().wait(LAST_SECONDS):
            os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
