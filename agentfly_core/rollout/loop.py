"""A thread with an event loop that other threads hand work to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

HELPER_THREADS = 32
"""Threads for long encodings and whatever else is handed to the loop's default executor."""

LOOK_SECONDS = 0.5
"""How often ``wait_for`` looks whether the loop is still alive."""


class LoopThread:
    """Runs an event loop on a daemon thread until ``stop``.

    Args:
        died: called on the thread when the loop has been stopped or has died, with the error if there was one.
            Afterwards what is left on the loop is cancelled.
    """

    def __init__(self, name: str, died: Callable[[BaseException | None], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self._died = died
        self._executor = ThreadPoolExecutor(HELPER_THREADS, thread_name_prefix=f"{name}-helper")
        self.loop.set_default_executor(self._executor)
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call it on the loop.

        Raises:
            RuntimeError: the loop has ended.
        """
        self.loop.call_soon_threadsafe(function, *arguments)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait_for(self, work: Coroutine[Any, Any, object]) -> None:
        """Run it on the loop, and wait until it or the loop has ended."""
        future = self.submit(work)
        while not future.done() and self._thread.is_alive():
            wait((future,), timeout=LOOK_SECONDS)

    def stop(self) -> None:
        """End the loop and its thread; returns when they have ended."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # it is closed already
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _main(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.set_event_loop(self.loop)
            while not self._stopping:
                self._run()
        except BaseException as raised:
            error = raised
            logger.exception("the event loop of %s died", self._thread.name)
        try:
            self._died(error)
            self._wind_up()
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self.loop.close()

    def _run(self) -> None:
        """Run until stopped. A callback that asks the interpreter to exit ends only itself: this is no main thread."""
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            logger.exception("something on the event loop of %s tried to exit", self._thread.name)

    def _wind_up(self) -> None:
        """Cancel what is left, and let it end."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
