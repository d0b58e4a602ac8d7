"""What a recipe says about its resources, and where."""

from __future__ import annotations

import pytest

from agentfly_core.recipes.checking import check_recipe
from agentfly_core.recipes.resources import build_coordinator, capacity_of, coordinator_url
from agentfly_core.resources import InProcessCoordinator, RedisCoordinator
from agentfly_core.types import UsageError

BASE = {"model": {"path": "m", "template": "t"}}


def recipe(**sections):
    return check_recipe({**BASE, **sections}, origin="recipe", overridden=())


def test_capacity_comes_from_both_sections():
    found = capacity_of(
        recipe(environment={"name": "e", "isolation": "worker", "capacity": 3}, resources={"capacity": {"docker": 5}})
    )
    assert found == {"worker": 3, "docker": 5}
    assert capacity_of(recipe()) == {}
    same = {"environment": {"name": "e", "capacity": 3}, "resources": {"capacity": {"object": 3}}}
    assert capacity_of(recipe(**same)) == {"object": 3}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"environment": {"name": "e", "capacity": 3}, "resources": {"capacity": {"object": 4}}},
            "environment.capacity and resources.capacity.object differ",
        ),
        ({"resources": {"warm": 3, "max_idle": 2}}, "raise max_idle"),
        ({"resources": {"coordinater": "local"}}, "coordinator"),
    ],
)
def test_what_contradicts_itself_is_refused(sections, message):
    with pytest.raises(UsageError, match=message):
        recipe(**sections)


def test_who_counts(monkeypatch):
    monkeypatch.delenv("AGENTFLY_REDIS_URL", raising=False)
    assert isinstance(build_coordinator(recipe()), InProcessCoordinator)
    with pytest.raises(UsageError, match="AGENTFLY_REDIS_URL, which is empty"):
        build_coordinator(recipe(resources={"coordinator": "redis"}))
    with pytest.raises(UsageError, match="'elsewhere' is neither local nor redis nor an address"):
        build_coordinator(recipe(resources={"coordinator": "elsewhere"}))
    monkeypatch.setenv("AGENTFLY_REDIS_URL", "rediss://u:p@h:6380/2")
    assert coordinator_url("redis") == "rediss://u:p@h:6380/2"
    pytest.importorskip("redis")
    assert isinstance(build_coordinator(recipe(resources={"coordinator": "redis"})), RedisCoordinator)
