"""An engine that owns its resources."""

from __future__ import annotations

import asyncio
from typing import Any

from agentfly_core.resources import ResourceManager
from agentfly_core.rollout import Engine


class RecipeEngine(Engine):
    """The engine of a recipe: nobody else leases from its resources, so that closing it stops them."""

    def __init__(self, *, resources: ResourceManager, **parts: Any) -> None:
        self._own_resources = resources
        super().__init__(resources=resources, **parts)

    def close(self) -> None:
        """Abort what still runs, stop every resource, end the thread. Twice does nothing."""
        super().close()
        asyncio.run(self._own_resources.close())
