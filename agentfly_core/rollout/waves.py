"""Fixed generation waves: the batch that samples a turn depends on the chains alone, never on timing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentfly_core.rollout.clock import Clock
from agentfly_core.types import Generation, GenerationRequest

GenerateWave: TypeAlias = Callable[[Sequence[GenerationRequest]], Awaitable[list[Generation]]]

ChainOrder: TypeAlias = tuple[str, str, int, int]
"""Group, task, chain index and number of submission: the order of the requests in a wave."""


@dataclass(slots=True, eq=False)
class _Waiting:
    order: ChainOrder
    clock: Clock
    request: GenerationRequest
    answer: asyncio.Future[Generation] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class WaveBarrier:
    """Holds requests back until every running chain has one, then samples them all as one wave.

    Everything happens on the engine's loop. Whoever changes ``running``, or resumes the clock, calls ``look``.

    Attributes:
        running: chains that have begun and not ended. Each of them will ask for a generation, or end.
    """

    def __init__(self, generate_wave: GenerateWave, clock: Clock) -> None:
        self.running = 0
        self._generate_wave = generate_wave
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._wave: asyncio.Task[None] | None = None

    async def generate(self, request: GenerationRequest, order: ChainOrder, clock: Clock) -> Generation:
        """Sample in the next wave. The chain's clock stands still until then: how slow others are is not its fault."""
        waiting = _Waiting(order, clock, request)
        clock.pause()
        self._waiting.append(waiting)
        self.look()
        try:
            return await waiting.answer
        finally:
            clock.resume()
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def look(self) -> None:
        """Fire a wave if all running chains wait for one."""
        if self._wave is None and self._waiting and not self._clock.paused and len(self._waiting) >= self.running:
            self._waiting.sort(key=lambda w: w.order)
            wave, self._waiting = self._waiting, []
            for waiting in wave:
                waiting.clock.resume()
            self._wave = asyncio.ensure_future(self._fire(wave))

    async def _fire(self, wave: list[_Waiting]) -> None:
        try:
            answers = await self._generate_wave([w.request for w in wave])
            for waiting, answer in zip(wave, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
        except Exception as error:
            for waiting in wave:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
        finally:
            self._wave = None
            for waiting in wave:
                waiting.answer.cancel()
            self.look()
