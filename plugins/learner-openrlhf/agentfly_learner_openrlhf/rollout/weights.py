"""Which weights an engine samples with, and when it stands still to exchange them. One engine a process."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from agentfly_learner_openrlhf.job import current_job

UPDATES = ("update_weight", "update_weight_cuda_ipc")
"""Remote calls that bring one parameter; the last argument is True for the last parameter of a broadcast."""


class Pausable(Protocol):
    """Something whose time stands still with the engine's."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class WeightClock:
    """Counts broadcasts. The version is the number of training steps that the weights have seen.

    OpenRLHF broadcasts after each step, and once when a run is resumed.
    """

    def __init__(self, start: int) -> None:
        self.version = start - 1 if start else 0
        self._paused = False
        self._listeners: list[Pausable] = []

    def listen(self, listener: Pausable) -> None:
        """Have it paused and resumed with the engine, from now on."""
        self._listeners.append(listener)
        if self._paused:
            listener.pause()

    def called(self, method: str, arguments: tuple[Any, ...]) -> None:
        """A remote call to the engine's workers has returned."""
        if method in UPDATES and arguments[-1]:
            self.version += 1

    def pause(self) -> None:
        """The engine samples nothing until ``resume``."""
        self._paused = True
        for listener in self._listeners:
            listener.pause()

    def resume(self) -> None:
        """The engine goes on."""
        self._paused = False
        for listener in self._listeners:
            listener.resume()


_clock: WeightClock | None = None


def weight_clock() -> WeightClock:
    """This process's."""
    global _clock
    if _clock is None:
        _clock = WeightClock(current_job().start)
    return _clock


def replace_in(module: ModuleType) -> None:
    """Have vLLM's engine tell the clock."""
    engine = module.AsyncLLM
    engine.collective_rpc = _counted(engine.collective_rpc)
    engine.pause_generation = _before(engine.pause_generation, lambda: weight_clock().pause())
    engine.resume_generation = _after(engine.resume_generation, lambda: weight_clock().resume())


def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
    async def collective_rpc(
        self: Any, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = await original(self, method, timeout, args, kwargs)
        weight_clock().called(method, args)
        return result

    return collective_rpc


def _before(original: Callable[..., Any], call: Callable[[], None]) -> Callable[..., Any]:
    async def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        call()
        return await original(self, *arguments, **options)

    return wrapped


def _after(original: Callable[..., Any], call: Callable[[], None]) -> Callable[..., Any]:
    async def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        result = await original(self, *arguments, **options)
        call()
        return result

    return wrapped
