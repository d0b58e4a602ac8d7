"""Objects in this process: no isolation, no cost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from agentfly_core.call_loop import on_call_loop
from agentfly_core.resources.handle import Handle, refuse_unsupported
from agentfly_core.resources.host import Host
from agentfly_core.resources.threads import SerialThread
from agentfly_core.types import Isolation, ResourceSpec


class ObjectHandle(Handle):
    """An object of this process. Its sync methods run on a thread of its own, its async ones on the call loop."""

    def __init__(self, spec: ResourceSpec) -> None:
        super().__init__(spec)
        self._thread = SerialThread(f"agentfly-object-{spec.target}")
        self.host = Host(self._invoke)

    async def start(self) -> None:
        """Make the object."""
        self.members = await self._request("start", "start", self.spec.target, self.spec.arguments())

    async def stop(self, *, timeout: float) -> None:
        """Close the object unless it is broken; what is queued behind a hung call is dropped."""
        try:
            if not self.broken:
                await self._request("close", "close", timeout=timeout)
        finally:
            self.fail("it was stopped")

    def fail(self, reason: str) -> None:
        """Take no more calls. A thread cannot be killed: a sync call that hangs keeps its own."""
        self.broken = self.broken or reason
        self._thread.close(self.gone())

    async def _perform(self, operation: str, payload: tuple[Any, ...]) -> Any:
        return await getattr(self.host, operation)(*payload)

    async def _invoke(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await on_call_loop(lambda: function(*args, **kwargs))
        result = await asyncio.wrap_future(self._thread.submit(lambda: function(*args, **kwargs)))
        return await on_call_loop(lambda: result) if inspect.isawaitable(result) else result


class ObjectProvider:
    """Makes objects from ``module:factory`` targets; the spec's options are the factory's arguments.

    Args:
        timeout: seconds that an object may take to reset or close itself.
    """

    isolation = Isolation.NONE

    def __init__(self, *, timeout: float = 10.0) -> None:
        self._timeout = timeout

    async def start(self, spec: ResourceSpec, *, run_id: str) -> ObjectHandle:
        """A new object."""
        refuse_unsupported(spec)
        handle = ObjectHandle(spec)
        try:
            await handle.start()
        except BaseException:
            handle.fail("it could not be started")
            raise
        return handle

    async def health(self, instance: ObjectHandle) -> bool:
        """Whether no call was abandoned half-way."""
        return not instance.broken

    async def reset(self, instance: ObjectHandle) -> bool:
        """Make it as new (see ``Host.recycle``); False says that it must be replaced."""
        return await instance.recycle(timeout=self._timeout)

    async def stop(self, instance: ObjectHandle) -> None:
        """Close it."""
        await instance.stop(timeout=self._timeout)

    async def runs(self) -> frozenset[str]:
        """None: nothing outlives this process."""
        return frozenset()

    async def sweep(self, run_id: str) -> int:
        """Nothing outlives this process."""
        return 0
