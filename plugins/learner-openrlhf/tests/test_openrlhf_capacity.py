"""Who counts the resources of a run, and what is known of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agentfly_learner_openrlhf import coordinator
from agentfly_learner_openrlhf.cluster import address_of, is_shared
from agentfly_learner_openrlhf.coordinator import RayCoordinator, coordinator_of
from agentfly_learner_openrlhf.driver import out_of_tasks
from agentfly_learner_openrlhf.hub import Hub, limits_of
from agentfly_learner_openrlhf.options import LaunchOptions
from agentfly_learner_openrlhf.trainer.resources import merged

from agentfly_core.recipes.schema import Recipe
from agentfly_core.types import Ticket


def recipe(**resources: Any) -> Recipe:
    return Recipe.model_validate({"name": "r", "model": {"path": "m", "template": "t"}, "resources": resources})


def test_the_hub_keeps_to_the_recipes_capacity_and_total() -> None:
    async def status() -> dict[str, int | None]:
        made = Hub(*limits_of(recipe(capacity={"docker": 3}, total=5)))
        ticket = await made.coordinate("acquire", ("docker", "chain"), {})
        found = {row.kind: row.capacity for row in await made.coordinate("status", (), {})}
        assert await made.coordinate("release", (ticket,), {}) is False
        return found

    assert asyncio.run(status()) == {"*": 5, "docker": 3}


def test_only_a_run_that_counts_for_itself_counts_in_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "hub", lambda: "the run's hub")
    assert isinstance(coordinator_of(recipe()), RayCoordinator)
    for address in ("redis://host:6379/0", "rediss://host", "unix:///run/redis", "redis"):
        assert coordinator_of(recipe(coordinator=address)) is None


class DirectHub:
    """The hub without Ray: a remote call is made at once."""

    def __init__(self, hub: Hub) -> None:
        self.coordinate = self
        self._hub = hub
        self.calls: list[asyncio.Task[Any]] = []

    def options(self, **options: Any) -> DirectHub:
        return self

    def remote(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> asyncio.Task[Any]:
        self.calls.append(asyncio.ensure_future(self._hub.coordinate(method, arguments, options)))
        return self.calls[-1]


def test_what_a_cancelled_wait_was_granted_is_as_it_was_before() -> None:
    """An idle share that the grant used up is idle again, and its holder's: the instance is still there."""

    async def play() -> tuple[int, int]:
        direct = DirectHub(Hub({"worker": 1}))
        shared = RayCoordinator(direct)
        call = direct.remote
        await call("attend", ("holder",), {"ttl": 60.0})
        first = await call("acquire", ("worker", "first"), {"holder": "holder"})
        assert await call("release", (first,), {"idle": True})
        taken: asyncio.Future[Ticket] = asyncio.ensure_future(
            call("acquire", ("worker", "second"), {"holder": "holder", "reuse": True})
        )
        assert (await taken).claimed
        shared._undo(taken)
        await asyncio.gather(*direct.calls)
        [_, row] = await call("status", (), {})
        return row.granted, row.idle

    assert asyncio.run(play()) == (0, 1)


def test_several_engines_numbers_are_one_runs() -> None:
    one = {"leases": 3.0, "failures": 1.0, "allocated_max": 2.0, "wait_seconds_mean": 1.0, "wait_seconds_max": 2.0}
    two = {"leases": 1.0, "failures": 0.0, "allocated_max": 1.0, "wait_seconds_mean": 5.0, "wait_seconds_max": 5.0}
    reports = [{f"resources/docker/{n}": v for n, v in report.items()} for report in (one, two)]
    assert merged([*reports, {}, {"resources/worker/leases": 4.0}]) == {
        "resources/docker/leases": 4.0,
        "resources/docker/failures": 1.0,
        "resources/docker/allocated_max": 3.0,
        "resources/docker/wait_seconds_mean": 2.0,  # (3 * 1 + 1 * 5) / 4
        "resources/docker/wait_seconds_max": 5.0,
        "resources/worker/leases": 4.0,
    }
    assert merged([]) == {}


def test_the_data_may_end_before_the_run() -> None:
    async def play() -> list[bool]:
        made = Hub({})
        await made.no_batch_after(2)
        found = [await made.ends_with(step) for step in (1, 2, 3)]
        await made.request_stop()
        return [*found, await made.ends_with(1)]

    assert asyncio.run(play()) == [False, True, False, True]


def test_ray_is_started_here_unless_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert (address_of(LaunchOptions()), is_shared(LaunchOptions())) == ("local", False)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert (address_of(LaunchOptions()), is_shared(LaunchOptions())) == ("auto", True)
    assert address_of(LaunchOptions(ray_address="head:6379")) == "head:6379"


def test_a_used_up_reserve_is_named() -> None:
    said = str(out_of_tasks(7, 20))
    assert said.startswith("learner.options.filter_reserve: the tasks at hand were used up after step 7 of 20")
