from __future__ import annotations

import threading
import warnings

import pytest

from agentfly_core.hookspecs import hookimpl
from agentfly_core.plugins import Plugins
from agentfly_core.types import UsageError


class Watcher:
    def __init__(self) -> None:
        self.seen: list[object] = []

    @hookimpl
    def update_finished(self, step):
        self.seen.append(step)


class Faulty:
    def __init__(self, error: BaseException) -> None:
        self.error, self.calls = error, 0

    @hookimpl
    def update_finished(self, step, metrics):
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [ValueError("oops"), SystemExit(2)])
def test_an_observer_that_raises_is_reported_once_and_hurts_nobody(error):
    plugins, before, faulty, after = Plugins(), Watcher(), Faulty(error), Watcher()
    for observer in (before, faulty, after):
        plugins.observe(observer)
    with pytest.warns(UserWarning, match="raised in update_finished and is disabled"):
        plugins.notify("update_finished", step=1, metrics={})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins.notify("update_finished", step=2, metrics={})
    assert (before.seen, faulty.calls, after.seen) == ([1, 2], 1, [1, 2])


def test_an_observer_taken_out_hears_no_more():
    plugins, watcher = Plugins(), Watcher()
    plugins.observe(watcher)
    plugins.unobserve(watcher)
    plugins.notify("update_finished", step=1, metrics={})
    assert watcher.seen == []


def test_an_observer_that_could_not_be_called_is_refused():
    class Typo:
        @hookimpl
        def update_finnished(self, step): ...

    with pytest.raises(UsageError, match="did you mean 'update_finished'"):
        Plugins().observe(Typo())


def test_observers_may_come_and_go_while_others_are_called():
    plugins, stop, errors = Plugins(), threading.Event(), []

    def come_and_go() -> None:
        try:
            while not stop.is_set():
                watcher = Watcher()
                plugins.observe(watcher)
                plugins.unobserve(watcher)
        except Exception as error:
            errors.append(error)

    steady = Watcher()
    plugins.observe(steady)
    thread = threading.Thread(target=come_and_go)
    thread.start()
    for step in range(500):
        plugins.notify("update_finished", step=step, metrics={})
    stop.set()
    thread.join()
    assert errors == []
    assert steady.seen == list(range(500))
