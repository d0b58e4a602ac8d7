"""An engine that owns its resources."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from agentfly_core.resources import ResourceManager, drain_on_sigterm
from agentfly_core.rollout import Engine
from agentfly_core.types import Coordinator


class RecipeEngine(Engine):
    """The engine of a recipe: nobody else leases from its resources, so that closing it stops them.

    Until then SIGTERM drains them first, where the program has no handler of its own.

    Args:
        coordinator: closed with the engine; None if it is another's.
    """

    def __init__(self, *, resources: ResourceManager, coordinator: Coordinator | None = None, **parts: Any) -> None:
        self._own_resources = resources
        self._own_coordinator = coordinator
        super().__init__(resources=resources, **parts)
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(drain_on_sigterm(resources))

    def resource_metrics(self) -> dict[str, float]:
        """Numbers of the resources since the last call; see ``resources.gauges.Gauges.report``."""
        return self._own_resources.metrics()

    def close(self) -> None:
        """Abort what still runs, stop every resource, end the thread. Twice does nothing."""
        super().close()
        asyncio.run(self._close_resources())
        self._signals.close()

    async def _close_resources(self) -> None:
        await self._own_resources.close()
        if self._own_coordinator is not None:
            await self._own_coordinator.close()
