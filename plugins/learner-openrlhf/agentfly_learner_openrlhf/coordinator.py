"""One capacity for all rollout actors of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentfly_core.recipes.schema import Recipe
from agentfly_core.types import AgentFlyError, CoordinatorStatus, ResourceError, Ticket
from agentfly_learner_openrlhf.hub import CAPACITY, hub


def coordinator_of(recipe: Recipe) -> RayCoordinator | None:
    """What counts for all rollout actors where the recipe says ``local``; None where it names a server that does."""
    return RayCoordinator(hub()) if recipe.resources.coordinator == "local" else None


class RayCoordinator:
    """Implements ``types.Coordinator`` by calls to the coordinator inside the run's ``Hub``.

    Args:
        hub: handle of the Ray actor.
    """

    def __init__(self, hub: Any) -> None:
        self._hub = hub

    async def acquire(
        self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0, holder: str = "", reuse: bool = False
    ) -> Ticket:
        """Wait for ``amount`` of ``kind``. Cancelling the wait leaves no trace; see ``types.Coordinator``."""
        import ray

        call = self._call("acquire", kind, owner, amount=amount, ttl=ttl, holder=holder, reuse=reuse)
        answer = asyncio.ensure_future(_answer(call))
        try:
            ticket: Ticket = await asyncio.shield(answer)
        except asyncio.CancelledError:
            ray.cancel(call)
            answer.add_done_callback(self._undo)
            raise
        return ticket

    async def try_acquire(
        self, kind: str, owner: str, *, ttl: float = 60.0, holder: str = "", idle: bool = False
    ) -> Ticket | None:
        """One unit at once or not at all."""
        ticket: Ticket | None = await _answer(self._call("try_acquire", kind, owner, ttl=ttl, holder=holder, idle=idle))
        return ticket

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds."""
        renewed: Ticket = await _answer(self._call("renew", ticket, ttl=ttl))
        return renewed

    async def release(self, ticket: Ticket, *, idle: bool = False) -> bool:
        """Give it back."""
        kept: bool = await _answer(self._call("release", ticket, idle=idle))
        return kept

    async def attend(self, holder: str, *, ttl: float = 60.0, patience: float = 0.0) -> Mapping[str, int]:
        """Say that the holder lives, and hear which idle shares others want."""
        wanted: Mapping[str, int] = await _answer(self._call("attend", holder, ttl=ttl, patience=patience))
        return wanted

    async def leave(self, holder: str) -> None:
        """Forget a holder and its idle shares."""
        await _answer(self._call("leave", holder))

    async def status(self) -> list[CoordinatorStatus]:
        """One row a kind, and the total."""
        rows: list[CoordinatorStatus] = await _answer(self._call("status"))
        return rows

    async def close(self) -> None:
        """There is no connection of its own to free."""

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._hub.coordinate.options(concurrency_group=CAPACITY).remote(method, arguments, options)

    def _undo(self, answer: asyncio.Future[Ticket]) -> None:
        """Give back what was granted while the wait was being cancelled, and what idle shares that had used up."""
        if not answer.cancelled() and answer.exception() is None:
            self._call("undo", answer.result())


async def _answer(call: Any) -> Any:
    """What the remote call returns, or the error it raised, as it was raised there."""
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return await call
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, AgentFlyError | ValueError) else error from None
    except RayActorError as error:
        raise ResourceError(f"the coordinator of this run cannot be reached: {error}") from error
