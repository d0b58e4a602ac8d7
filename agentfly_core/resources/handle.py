"""What the holder of a lease calls: the same for an object in this process and for one in a worker."""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from agentfly_core.types import LeaseLost, ResourceError, ResourceSpec, ToolContext, ToolOutcome


class RemoteTraceback(Exception):
    """The traceback in another process, as the cause of the error that it led to."""


class Handle(ABC):
    """An object that is called by name, one call after another.

    Attributes:
        members: names of its public methods.
        broken: why it takes no more calls and will be replaced; empty while it works.
        valid_until: when its lease ends, in seconds of ``time.monotonic()``; see ``types.Fenced``.
    """

    def __init__(self, spec: ResourceSpec) -> None:
        self.spec = spec
        self.members: frozenset[str] = frozenset()
        self.broken = ""
        self.valid_until = math.inf

    async def call(self, method: str, /, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Call a public method, sync or async; what it raises is raised here.

        A call that is cancelled or runs out of time leaves the object in a state that nobody knows: it takes no
        further call and is replaced when the lease ends.

        Raises:
            TimeoutError: it took longer than ``timeout`` seconds.
            ResourceError: the object is gone, or arguments or result cannot travel.
            LeaseLost: its lease has run out.
        """
        self._refuse_if_over()
        return await self._request(method, "call", method, args, kwargs, timeout=timeout)

    async def tool_schemas(self) -> list[dict[str, Any]]:
        """Of each tool that the object's ``tools()`` offers: name, description, parameters and exclusive."""
        self._refuse_if_over()
        schemas: list[dict[str, Any]] = await self._request("tools", "tool_schemas")
        return schemas

    async def call_tool(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Call one of those tools beside its object. A worker's tool sees no environment and resources in its context,
        and a copy of the rest."""
        self._refuse_if_over()
        outcome: ToolOutcome = await self._request(f"tool {name}", "call_tool", name, dict(arguments), context)
        return outcome

    async def recycle(self, *, timeout: float) -> bool:
        """Make it as new; False says that it must be replaced."""
        return not self.broken and bool(await self._request("reset", "recycle", timeout=timeout))

    def _refuse_if_over(self) -> None:
        if time.monotonic() > self.valid_until:
            raise LeaseLost(f"the lease of {self.spec.kind} {self.spec.target!r} has run out: it takes no more calls")

    async def _request(self, label: str, operation: str, *payload: Any, timeout: float | None = None) -> Any:
        if self.broken:
            raise self.gone()
        task = asyncio.ensure_future(self._perform(operation, payload))
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            self._abandon(task, f"its call {label!r} was cancelled")
            raise
        if not done:
            self._abandon(task, f"its call {label!r} ran longer than {timeout} s")
            raise TimeoutError(f"{self.spec.target} did not answer {label!r} within {timeout} s")
        return task.result()

    def _abandon(self, task: asyncio.Future[Any], reason: str) -> None:
        if not task.done():
            self.fail(reason)
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        task.cancel()

    def gone(self) -> ResourceError:
        """The error of every call after it broke."""
        return ResourceError(f"{self.spec.kind} {self.spec.target!r} is gone: {self.broken}")

    @abstractmethod
    async def _perform(self, operation: str, payload: tuple[Any, ...]) -> Any:
        """Carry a ``Host`` operation out."""

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Take no more calls; the first reason stays."""


def refuse_unsupported(spec: ResourceSpec, *supported: str) -> None:
    """Refuse a spec that asks for what its provider cannot give, rather than ignore it.

    Raises:
        ResourceError: naming the fields.
    """
    plain = ResourceSpec(spec.kind)
    always = {"kind", "target", "options", "min_isolation", "network", *supported}
    fields = [f for f in ResourceSpec.__dataclass_fields__ if f not in always]
    if asked := [f for f in fields if getattr(spec, f) != getattr(plain, f)]:
        raise ResourceError(f"resources of kind {spec.kind!r} cannot honour {', '.join(asked)}")
