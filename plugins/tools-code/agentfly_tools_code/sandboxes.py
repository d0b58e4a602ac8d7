"""Which sandbox the tools run in, and the one that all tools of a chain share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from agentfly_core.recipes.calling import build
from agentfly_core.types import Isolation, ResourceError, ResourceSpec, Sandbox, ToolContext, UsageError

T = TypeVar("T")

STATE = "agentfly_tools_code"
"""Key of what a chain's tools share in ``ToolContext.state``."""


def sandbox_spec(
    kind: str = "process",
    *,
    min_isolation: str = "sandbox",
    image: str = "",
    memory: int | None = 1024,
    pids: int | None = 64,
    cpu: float | None = None,
    disk: int | None = 256,
    network: bool = False,
    environment: dict[str, str] | None = None,
    setup: str = "",
) -> ResourceSpec:
    """The spec that a recipe's ``sandbox`` options mean.

    Args:
        kind: ``process``, ``docker``, or another kind whose leases hold a ``Sandbox``.
        min_isolation: ``sandbox``, ``container``, or ``process``: the last one lets code that a model wrote run with
            nothing around it but limits on its resources, able to read what this user can read.
        image: of a container.
        memory, disk: MiB. pids: processes. cpu: cores. network: whether it reaches any.
        environment: variables of the processes inside.
        setup: a shell command run once in each new sandbox.

    Raises:
        UsageError: an isolation that does not exist.
    """
    levels = {level.name.lower(): level for level in Isolation if level is not Isolation.NONE}
    if min_isolation not in levels:
        raise UsageError(f"min_isolation must be one of {', '.join(levels)}, got {min_isolation!r}")
    return ResourceSpec(
        kind,
        image=image,
        memory=memory,
        pids=pids,
        cpu=cpu,
        disk=disk,
        network=network,
        environment=tuple(sorted((environment or {}).items())),
        min_isolation=levels[min_isolation],
        setup=setup,
    )


def read_spec(options: Mapping[str, Any] | None) -> ResourceSpec:
    """``sandbox_spec`` of options that a user wrote.

    Raises:
        UsageError: an unknown option or a wrong value.
    """
    spec: ResourceSpec = build("sandbox", sandbox_spec, options or {})
    return spec


class SandboxGone(Exception):
    """The sandbox in use has ended, and with it everything that was in it."""


class ChainSandbox:
    """A sandbox leased when it is first needed, and again should it be lost.

    Attributes:
        parts: what tools keep beside it for as long as this very sandbox lives.
        closed: whether it was given back at the end of its chain.
    """

    def __init__(self, spec: ResourceSpec, context: ToolContext) -> None:
        if context.resources is None:
            raise UsageError(
                "this tool runs in a sandbox, and there are no resources to lease one from: give the engine a "
                "ResourceManager (recipes and HFAgent do)"
            )
        self._spec = spec
        self._resources = context.resources
        self._owner = context.chain
        self._lock = asyncio.Lock()
        self._stack: contextlib.AsyncExitStack | None = None
        self._lease: Any = None
        self.closed = False
        self.parts: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncIterator[Sandbox]:
        """The sandbox, leased, waiting for a free one if need be.

        Raises:
            SandboxGone: it ended before or meanwhile; the next one is new and empty.
            ResourceError: there is none to be had.
        """
        lease = await self._leased()
        try:
            yield lease.resource
        except ResourceError as error:
            await self._drop(lease)
            raise SandboxGone(str(error).removeprefix("the sandbox is gone: ")) from error

    async def _leased(self) -> Any:
        async with self._lock:
            if self._lease is None:
                stack = contextlib.AsyncExitStack()
                self._lease = await stack.enter_async_context(self._resources.lease(self._spec, owner=self._owner))
                self._stack = stack
            return self._lease

    def held(self) -> Sandbox | None:
        """The sandbox, if one is leased now.

        Raises:
            LeaseLost: it is gone.
        """
        sandbox: Sandbox | None = None if self._lease is None else self._lease.resource
        return sandbox

    def part(self, name: str, make: Callable[[], T]) -> T:
        """The part of this name, made on first use."""
        if name not in self.parts:
            self.parts[name] = make()
        made: T = self.parts[name]
        return made

    async def close(self) -> None:
        """Give it back. Everything that still runs in it ends."""
        self.closed = True
        await self._drop(self._lease)

    async def _drop(self, lease: Any) -> None:
        """Give this one up, if another call has not done so."""
        async with self._lock:
            if lease is None or lease is not self._lease:
                return
            stack, self._stack, self._lease = self._stack, None, None
            self.parts = {}
            if stack is not None:
                await stack.aclose()


@contextlib.asynccontextmanager
async def chain_sandbox(spec: ResourceSpec, context: ToolContext) -> AsyncIterator[ChainSandbox]:
    """The chain's sandbox of this spec; outside a chain one that lives for this call.

    Raises:
        UsageError: there are no resources.
    """
    if context.scope is None:
        own = ChainSandbox(spec, context)
        try:
            yield own
        finally:
            await own.close()
        return
    shared = context.state.setdefault(STATE, {})
    if spec not in shared:
        shared[spec] = ChainSandbox(spec, context)
        context.scope.push_async_callback(shared[spec].close)
    yield shared[spec]
