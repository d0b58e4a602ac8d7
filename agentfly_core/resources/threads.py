"""A thread that does one thing after another."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class SerialThread:
    """Runs functions in the order in which they were submitted, on one thread of their own.

    Unlike an executor's, the thread is a daemon: a function that never returns does not keep the process alive.
    It starts with the first submission.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Queue a call; cancelling the future before its turn takes it out."""
        future: Future[Any] = Future()
        with self._changed:
            if self._error is not None:
                future.set_exception(self._error)
                return future
            self._jobs.append((future, function))
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return future

    def close(self, error: Exception) -> None:
        """End after the call that runs now. What is queued, and what is submitted later, fails with ``error``."""
        with self._changed:
            if self._error is None:
                self._error = error
            dropped = list(self._jobs)
            self._jobs.clear()
            self._changed.notify()
        for future, _ in dropped:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._error is not None)
                if not self._jobs:
                    return
                future, function = self._jobs.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del future, function
