"""Watches OpenRLHF train: writes what it tells, passes on the wish to stop, and ends what stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from agentfly_core.learners.reporting import Report
from agentfly_learner_openrlhf.failures import ClusterError
from agentfly_learner_openrlhf.hub import Event
from agentfly_learner_openrlhf.options import LaunchOptions

JOIN_SECONDS = 10.0

PATIENCE = 0.5
"""Seconds that one look at the hub may take when nothing happens."""


class Supervisor:
    """Runs OpenRLHF's ``train`` on a thread and looks after it on the caller's.

    Args:
        hub: the run's actor.
        report: what is told is written there.
        stop: set by the user.
        step: the last training step done.
    """

    def __init__(self, hub: Any, report: Report, options: LaunchOptions, stop: threading.Event, step: int) -> None:
        self.step = step
        self._hub = hub
        self._report = report
        self._options = options
        self._stop = stop
        self._stop_passed_on = False
        self._error: BaseException | None = None
        self._watchdog = _Watchdog(options)

    def watch(self, train: Callable[[], None]) -> None:
        """Call it, until it has trained and saved.

        Raises:
            ClusterError: it stands still.
            Exception: whatever it raised.
        """
        from ray.exceptions import RayError

        thread = threading.Thread(target=self._train, args=(train,), name="openrlhf", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._look(PATIENCE)
                self._watchdog.check()
            self._look(0.0)
        except RayError:
            thread.join(JOIN_SECONDS)  # whatever broke has most likely broken the training as well, and says why there
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error

    def _train(self, train: Callable[[], None]) -> None:
        try:
            train()
        except BaseException as error:
            self._error = error

    def _look(self, patience: float) -> None:
        import ray

        if self._stop.is_set() and not self._stop_passed_on:
            self._stop_passed_on = True
            ray.get(self._hub.request_stop.remote())
        for event in ray.get(self._hub.events.remote(patience)):
            self._watchdog.saw(event)
            if event.kind == "metrics":
                self._report.step(event.step, event.metrics)
                self.step = max(self.step, event.step)


class _Watchdog:
    """Knows what the run waits for, and for how long already."""

    def __init__(self, options: LaunchOptions) -> None:
        self._what, self._limit, self._option = "the first batch", options.first_batch_timeout, "first_batch_timeout"
        self._step_limit = options.step_timeout
        self._since = time.monotonic()

    def saw(self, event: Event) -> None:
        """Something happened: from now on the next step is waited for."""
        if event.kind == "batch" or self._option == "step_timeout":
            self._what, self._limit, self._option = f"step {event.step + 1}", self._step_limit, "step_timeout"
        self._since = time.monotonic()

    def check(self) -> None:
        """Raise if it has been too long.

        Raises:
            ClusterError: see above.
        """
        if time.monotonic() - self._since > self._limit:
            raise ClusterError(
                f"the run stands still: {self._what} did not come within {self._limit:g} s. Look into the logs of "
                f"Ray's workers, or raise learner.options.{self._option}"
            )
