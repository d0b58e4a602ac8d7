"""Environments for the engine's tests, leased as ``object`` resources by the path of this file."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from agentfly_core.tools import tool
from agentfly_core.types import Observation, StepResult, Task, ToolContext


class Corridor:
    """Walk ``length`` steps right; each pays 0.25, the last one 1. Other words have their own effect."""

    def __init__(self, length: int = 3) -> None:
        self._length = length
        self._at = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self._at = 0
        if task.fields.get("reset") == "raises":
            raise RuntimeError("the door is stuck")
        return Observation(f"Cell 0 of {self._length}.")

    async def step(self, action: str) -> StepResult:
        if action == "explode":
            raise RuntimeError("boom")
        if action == "hang":
            await asyncio.Event().wait()
        if action == "junk":
            return ("obs", 0.0, False)  # type: ignore[return-value]
        if action == "wrap":
            return StepResult(Observation("a"))  # type: ignore[arg-type]
        if action == "nan":
            return StepResult("?", reward=float("nan"))
        if action == "words":
            return StepResult("?", reward="much")  # type: ignore[arg-type]
        if action != "right":
            return StepResult(f"Nothing happens in cell {self._at}.")
        self._at += 1
        done = self._at == self._length
        return StepResult(f"Cell {self._at}.", reward=1.0 if done else 0.25, terminated=done)

    async def close(self) -> None:
        pass

    def anchor(self) -> str:
        return f"cell{self._at}"


@tool(exclusive=True)
async def walk(direction: str, context: ToolContext) -> str:
    """Walk one step."""
    assert context.environment is not None
    result = await context.environment.step(direction)
    return str(result.observation)


class ToolCorridor(Corridor):
    """Offers a static tool, which runs beside the engine and steps through the recording environment."""

    @staticmethod
    def tools() -> list[Any]:
        return [walk]


class OwnToolCorridor(Corridor):
    """Offers a tool of the instance, which runs where the instance lives."""

    def tools(self) -> list[Any]:
        @tool
        def where() -> str:
            """Say where we are."""
            return f"in cell {self._at}"

        return [where]


class Verbose(Corridor):
    """Says a lot: text on reset, parts or an object on a step."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation("a" * 100 + "m" * 500 + "z" * 100)

    async def step(self, action: str) -> StepResult:
        if action == "parts":
            return StepResult([{"type": "text", "text": "b" * 400}, {"type": "text", "text": "short"}])
        if action == "surrogate":
            return StepResult("\ud800")
        return StepResult("c" * 201, info={"kept": True})


class Seeded(Corridor):
    """Shows its seed."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation("Go.", info={"seed": seed})


class Meeting:
    """A synchronous environment, whose step blocks its thread until ten of them are in it."""

    everyone = threading.Barrier(10)

    def reset(self, task: Task, seed: int) -> Observation:
        return Observation("Go.")

    def step(self, action: str) -> StepResult:
        self.everyone.wait(60)
        return StepResult("Done.", reward=1.0, terminated=True)

    def close(self) -> None:
        pass


class Blocking:
    """A synchronous environment, whose steps block their thread."""

    def reset(self, task: Task, seed: int) -> Observation:
        return Observation("Go.")

    def step(self, action: str) -> StepResult:
        time.sleep(0.2)
        return StepResult("Done.", reward=1.0, terminated=True)

    def close(self) -> None:
        pass


def broken() -> Corridor:
    raise OSError("no such world")
