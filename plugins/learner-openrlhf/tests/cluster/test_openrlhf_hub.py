"""The run's Ray actor, the capacity behind it, and whoever watches it. On real Ray, without OpenRLHF."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from agentfly_learner_openrlhf.coordinator import RayCoordinator
from agentfly_learner_openrlhf.failures import ClusterError
from agentfly_learner_openrlhf.hub import Event, start_hub
from agentfly_learner_openrlhf.options import LaunchOptions
from agentfly_learner_openrlhf.supervisor import Supervisor

from agentfly_core.testing import check_coordinator

pytestmark = pytest.mark.e2e

ray: Any = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def make_hub(cluster: None) -> Iterator[Callable[..., Any]]:
    started = []

    def make(capacity: Mapping[str, int] | None = None, total: int | None = None) -> Any:
        hub = start_hub(f"test-{time.monotonic_ns()}", capacity or {}, total)
        started.append(hub)
        return hub

    yield make
    for hub in started:
        ray.kill(hub)


def test_capacity_over_ray_keeps_the_rules(make_hub: Callable[..., Any]) -> None:
    check_coordinator(
        lambda capacity, total: RayCoordinator(make_hub(capacity, total)), ttl=4.0, patience=60.0, steps=40
    )


def test_events_come_in_order_and_once(make_hub: Callable[..., Any]) -> None:
    hub = make_hub()
    assert ray.get(hub.events.remote(0.0)) == []
    told = [Event("batch", 1), Event("metrics", 1, {"reward/mean": 0.5}), Event("batch", 2)]
    for event in told:
        ray.get(hub.tell.remote(event))
    assert ray.get(hub.events.remote(0.0)) == told
    assert ray.get(hub.events.remote(0.0)) == []
    waiting = hub.events.remote(60.0)
    ray.get(hub.tell.remote(told[0]))
    assert ray.get(waiting) == told[:1]


class Reported:
    """Stands where the run folder's writer is."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Mapping[str, float]]] = []

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append((step, metrics))


def supervisor(hub: Any, stop: threading.Event | None = None, **limits: float) -> tuple[Supervisor, Reported]:
    reported = Reported()
    return Supervisor(hub, reported, LaunchOptions(**limits), stop or threading.Event(), 0), reported  # type: ignore[arg-type]


def test_every_step_is_reported_before_the_end(make_hub: Callable[..., Any]) -> None:
    hub = make_hub()
    watching, reported = supervisor(hub)

    def train() -> None:
        for step in (1, 2, 3):
            ray.get(hub.tell.remote(Event("batch", step)))
            ray.get(hub.tell.remote(Event("metrics", step, {"x": float(step)})))

    watching.watch(train)
    assert reported.steps == [(1, {"x": 1.0}), (2, {"x": 2.0}), (3, {"x": 3.0})]
    assert watching.step == 3


def test_the_wish_to_stop_is_passed_on(make_hub: Callable[..., Any]) -> None:
    hub, stop = make_hub(), threading.Event()
    watching, _ = supervisor(hub, stop)

    def train() -> None:
        assert not ray.get(hub.stop_requested.remote())
        stop.set()
        while not ray.get(hub.stop_requested.remote()):
            time.sleep(0.05)

    watching.watch(train)


def test_what_training_raises_is_raised(make_hub: Callable[..., Any]) -> None:
    watching, _ = supervisor(make_hub())

    def train() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        watching.watch(train)


@pytest.mark.parametrize(("begun", "what"), [(False, "the first batch did not come"), (True, "step 4 did not come")])
def test_a_run_that_stands_still_is_ended(make_hub: Callable[..., Any], begun: bool, what: str) -> None:
    hub, go = make_hub(), threading.Event()
    watching, _ = supervisor(hub, first_batch_timeout=60.0 if begun else 0.5, step_timeout=0.5)

    def train() -> None:
        if begun:
            ray.get(hub.tell.remote(Event("batch", 3)))
        go.wait()

    try:
        with pytest.raises(ClusterError, match=what):
            watching.watch(train)
    finally:
        go.set()
