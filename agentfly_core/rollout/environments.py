"""A chain's environment: a leased object as the agent and its tools see it, with every step recorded."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, TypeVar

from agentfly_core.resources.coordinator import TOTAL
from agentfly_core.resources.handle import Handle
from agentfly_core.resources.host import load_target
from agentfly_core.types import (
    Observation,
    ResourceError,
    ResourceSpec,
    StepResult,
    Task,
    Tool,
    ToolContext,
    ToolOutcome,
    ToolSchema,
    UsageError,
    is_content,
)

R = TypeVar("R")


def _at_home(method: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., Coroutine[Any, Any, R]]:
    """Run it on the engine's loop: a tool that calls it has a loop of its own."""

    @functools.wraps(method)
    async def call(self: RecordingEnvironment, *arguments: Any) -> R:
        if asyncio.get_running_loop() is self._home:
            return await method(self, *arguments)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(self, *arguments), self._home))

    return call


class RecordingEnvironment:
    """The leased environment as an ``Environment``. Steps made by the engine and inside tools run one at a time.

    Made on the engine's loop; its methods may be awaited on any.

    Attributes:
        done: a step ended the episode; later steps change nothing.
        error: why the environment can no longer be trusted (it raised, or a step was cut off); None while it can.
    """

    def __init__(self, handle: Handle) -> None:
        self.done = False
        self.error: str | None = None
        self._home = asyncio.get_running_loop()
        self._handle = handle
        self._lock = asyncio.Lock()
        self._reward = 0.0

    @_at_home
    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task."""
        first = self._expect(Observation, await self._call("reset", task, seed), "reset")
        self._expect_content(first.content, "reset")
        return first

    @_at_home
    async def step(self, action: str) -> StepResult:
        """Act, and keep the reward for the turn. After the end nothing happens any more."""
        async with self._lock:
            if self.done:
                return StepResult("The episode is over.", terminated=True)
            result = self._expect(StepResult, await self._call("step", action), "step")
            self._expect_content(result.observation, "step")
            if not isinstance(result.reward, SupportsFloat):
                self._fail(f"step gave the reward {result.reward!r}, which is no number")
                raise ResourceError(f"the environment failed: {self.error}")
            self._reward += float(result.reward)
            self.done = result.done
            return result

    async def close(self) -> None:
        """Nothing: the end of the lease closes the environment, or keeps it for another chain."""

    @property
    def has_anchor(self) -> bool:
        """Whether the environment names its states."""
        return "anchor" in self._handle.members

    @_at_home
    async def anchor(self) -> str:
        """The state's key."""
        return str(await self._call("anchor"))

    @_at_home
    async def admissible_actions(self) -> Sequence[str]:
        """The actions that now make sense; empty where the environment does not say."""
        has = "admissible_actions" in self._handle.members
        return list(await self._call("admissible_actions")) if has else []

    @_at_home
    async def tools(self) -> list[Tool]:
        """The tools that it offers."""
        if "tools" not in self._handle.members:
            return []
        own = await asyncio.to_thread(static_tools, self._handle.spec.target)
        if own is not None:
            return list(own)
        return [_RemoteTool(self._handle, **schema) for schema in await self._handle.tool_schemas()]

    def take_reward(self) -> float:
        """Sum of the step rewards since the last time."""
        reward, self._reward = self._reward, 0.0
        return reward

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self.error is not None:
            raise ResourceError(f"the environment failed before: {self.error}")
        try:
            return await self._handle.call(method, *arguments)
        except asyncio.CancelledError:
            self._fail(f"{method} was cut off")
            raise
        except Exception as error:
            self._fail(f"{method} raised {type(error).__name__}: {error}")
            raise

    def _expect(self, kind: type[R], result: Any, method: str) -> R:
        if not isinstance(result, kind):
            self._fail(f"{method} returned {type(result).__name__}, not {kind.__name__}")
            raise ResourceError(f"the environment failed: {self.error}")
        return result

    def _expect_content(self, content: Any, method: str) -> None:
        if not is_content(content):
            self._fail(f"{method} gave as observation {content!r:.100}: it must be text, or text and image parts")
            raise ResourceError(f"the environment failed: {self.error}")

    def _fail(self, reason: str) -> None:
        """Trust it no more; the pool replaces it rather than hand it to another chain."""
        self.error = self.error or reason
        self._handle.fail(reason)


async def capacity_for(spec: ResourceSpec, resources: Any) -> int | None:
    """How many environments there can be at once; None if the manager sets or tells no limit."""
    coordinator = getattr(resources, "coordinator", None)
    rows = [] if coordinator is None else await coordinator.status()
    limits = [row.capacity for row in rows if row.kind in (spec.kind, TOTAL) and row.capacity is not None]
    return min(limits, default=None)


@functools.lru_cache(maxsize=64)
def static_tools(target: str) -> tuple[Tool, ...] | None:
    """What the environment class's static (or class) method ``tools`` offers; None where it is no such class.

    Such tools run in this process, wherever the environment lives: only their ``context.environment.step`` crosses.
    """
    factory = load_target(target)
    member = inspect.getattr_static(factory, "tools", None) if inspect.isclass(factory) else None
    return tuple(factory.tools()) if isinstance(member, staticmethod | classmethod) else None  # type: ignore[attr-defined]


def merge_tools(own: Mapping[str, Tool], more: Sequence[Tool]) -> dict[str, Tool]:
    """Both sets by name.

    Raises:
        UsageError: two different tools have one name.
    """
    merged = dict(own)
    for tool in more:
        if merged.setdefault(tool.name, tool) is not tool:
            raise UsageError(f"two tools are named {tool.name!r}, the environment's and the agent's: rename one")
    return merged


@dataclass(frozen=True, slots=True)
class _RemoteTool:
    """A tool that lives beside the environment object and is called there."""

    handle: Handle
    name: str
    description: str
    parameters: dict[str, Any]
    exclusive: bool

    def schema(self) -> ToolSchema:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def check_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """As they are: they are checked where the tool is."""
        return arguments

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await self.handle.call_tool(self.name, arguments, context)
