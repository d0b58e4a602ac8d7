"""How a chain's requests reach the backend: one by one or in waves, on this loop or on the backend's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from agentfly_core.rollout.clock import Clock
from agentfly_core.rollout.waves import ChainOrder, WaveBarrier
from agentfly_core.types import Generation, GenerationBackend, GenerationRequest, UsageError, WaveBackend

A = TypeVar("A")
R = TypeVar("R")


class DirectSampler:
    """Hands each request on at once; while the clock is paused, when it goes on.

    Attributes:
        running: as in ``WaveBarrier``; of no consequence here.
    """

    def __init__(self, generate: Callable[[GenerationRequest], Awaitable[Generation]], clock: Clock) -> None:
        self.running = 0
        self._generate = generate
        self._clock = clock
        self._held: list[asyncio.Future[None]] = []

    async def generate(self, request: GenerationRequest, order: ChainOrder, clock: Clock) -> Generation:
        """Sample now."""
        while self._clock.paused:
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append(held)
            await held
        return await self._generate(request)

    def look(self) -> None:
        """Let go of what was held, if the clock goes on."""
        if self._held and not self._clock.paused:
            held, self._held = self._held, []
            for future in held:
                if not future.done():
                    future.set_result(None)


Sampler: TypeAlias = DirectSampler | WaveBarrier


def sampler_for(backend: GenerationBackend, clock: Clock, *, deterministic: bool) -> Sampler:
    """The sampler of this backend.

    Raises:
        UsageError: waves are asked of a backend that has none.
    """
    if not deterministic:
        return DirectSampler(on_loop_of(backend, backend.generate), clock)
    if not isinstance(backend, WaveBackend):
        raise UsageError(f"deterministic: {type(backend).__name__} cannot sample in waves (it has no generate_wave)")
    return WaveBarrier(on_loop_of(backend, backend.generate_wave), clock)


def on_loop_of(backend: object, method: Callable[[A], Coroutine[Any, Any, R]]) -> Callable[[A], Awaitable[R]]:
    """The method itself, or, for a backend with a ``loop`` of its own, a call that crosses over to it.

    Cancelling the crossing call cancels the one on the other loop.
    """
    loop = getattr(backend, "loop", None)
    if loop is None:
        return method
    if not isinstance(loop, asyncio.AbstractEventLoop):
        raise UsageError(f"{type(backend).__name__}.loop must be an event loop or None, got {loop!r}")

    def crossing(argument: A) -> Awaitable[R]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(argument), loop))

    return crossing
