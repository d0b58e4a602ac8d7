"""A recipe's resources: who counts them, and who leases them."""

from __future__ import annotations

import os
from pathlib import Path

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.calling import build
from agentfly_core.recipes.schema import Recipe
from agentfly_core.resources import InProcessCoordinator, RedisCoordinator, ResourceManager
from agentfly_core.resources.redis_link import shown
from agentfly_core.types import Coordinator, ResourceProvider, ResourceSpec, UsageError

URL_VARIABLE = "AGENTFLY_REDIS_URL"
STATUS_FILE = "resources.json"
"""In a run's folder: what it has leased, as long as it runs."""


def capacity_of(recipe: Recipe) -> dict[str, int]:
    """Most resources of each kind that the recipe allows at once, over all engines of the run."""
    section = recipe.environment
    own: dict[str, int] = {section.isolation: section.capacity} if section and section.capacity else {}
    return {**recipe.resources.capacity, **own}


def build_coordinator(recipe: Recipe) -> Coordinator:
    """What counts the recipe's capacity.

    Raises:
        UsageError: ``resources.coordinator`` leads nowhere.
    """
    section, capacity = recipe.resources, capacity_of(recipe)
    if section.coordinator == "local":
        return InProcessCoordinator(capacity, section.total)
    url = coordinator_url(section.coordinator)
    return RedisCoordinator(url, capacity or None, section.total, name=section.pool, lease_time=section.ttl)


def coordinator_url(name: str) -> str:
    """The address that ``resources.coordinator`` names.

    Raises:
        UsageError: it is none.
    """
    url = os.environ.get(URL_VARIABLE, "") if name == "redis" else name
    if not url:
        raise UsageError(f"resources.coordinator: redis takes the server's address from {URL_VARIABLE}, which is empty")
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise UsageError(
            f"resources.coordinator: {shown(url)!r} is neither local nor redis nor an address that "
            "begins with redis://, rediss:// or unix://"
        )
    return url


def build_providers(plugins: Plugins) -> dict[str, ResourceProvider]:
    """Every registered provider by its kind; nothing is started."""
    registry = plugins.registry("resources")
    return {name: build(f"resource {name!r}", registry.get(name), {}) for name in registry.names()}


def build_resources(plugins: Plugins, coordinator: Coordinator | None = None) -> ResourceManager:
    """Every registered provider under one manager; nothing is started. None sets no limit to the capacity."""
    return ResourceManager(coordinator or InProcessCoordinator(), build_providers(plugins))


def resources_of(
    recipe: Recipe,
    plugins: Plugins,
    coordinator: Coordinator | None,
    environment: ResourceSpec | None,
    folder: Path | None,
) -> ResourceManager:
    """The manager of a recipe's engine."""
    section = recipe.resources
    return ResourceManager(
        coordinator or build_coordinator(recipe),
        build_providers(plugins),
        warm={environment: section.warm} if environment and section.warm else None,
        max_idle=section.max_idle,
        ttl=section.ttl,
        lease_limit=section.lease_limit,
        status_file=folder / STATUS_FILE if folder else None,
    )
