"""Conversations in which a task is solved by the simulator's gold path: for a supervised start (``agentfly sft``)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

from agentfly_core.types import Message, Task, ToolContext, UnknownName, text_of
from agentfly_envs_scienceworld.actions import action_tools, as_call
from agentfly_envs_scienceworld.environment import ScienceWorld
from agentfly_envs_scienceworld.tasks import scienceworld_tasks

Form: TypeAlias = Literal["text", "tools"]

_log = logging.getLogger(__name__)


def demonstrations(
    *,
    form: Form = "text",
    tasks: Sequence[str] = (),
    subset: str = "train",
    limit_per_task: int | None = None,
    simplifications: Sequence[str] = ("easy",),
    show_commands: bool = False,
    limit: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows with ``messages``, one a variation that its gold path solves; others are left out, with a warning.

    The paths are found and played as the rows are asked for.

    Args:
        form: ``text``: raw text actions. ``tools``: tool calls, for a recipe whose environment is ``scienceworld``.
        tasks, subset, limit_per_task: which variations, see ``scienceworld_tasks``.
        simplifications, show_commands: of the environment.
        limit: only so many variations, and then again from the first.
    """
    if form not in get_args(Form):
        raise UnknownName("form of demonstrations", str(form), get_args(Form))
    chosen = scienceworld_tasks("train", subset=subset, tasks=tasks, limit_per_task=limit_per_task)
    world = ScienceWorld(simplifications=simplifications, max_steps=10_000, show_commands=show_commands)
    try:
        for task in itertools.islice(chosen, limit):
            messages, total = asyncio.run(_play(world, task, form))
            if total == 1.0:
                yield {"messages": messages}
            else:
                _log.warning("%s is left out: its gold path scores %.0f", task.id, 100 * total)
    finally:
        asyncio.run(world.close())


async def _play(world: ScienceWorld, task: Task, form: Form) -> tuple[list[Message], float]:
    """The conversation, up to the last action, and its return."""
    messages: list[Message] = [{"role": "user", "content": (await world.reset(task, 0)).content}]
    recorder = _Recorder(world)
    tools = {tool.name: tool for tool in action_tools()}
    for command in world.gold_path():
        if recorder.done:
            break
        if form == "text":
            result = await recorder.step(command)
            reply: Message = {"role": "assistant", "content": command}
            answer: Message = {"role": "user", "content": result.observation}
        else:
            name, arguments = as_call(command)
            outcome = await tools[name].call(arguments, ToolContext(environment=recorder))
            calls = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
            reply = {"role": "assistant", "content": "", "tool_calls": calls}
            answer = {"role": "tool", "content": text_of(outcome.content), "name": name}
        messages += [reply, answer]
    return messages[:-1], recorder.total


class _Recorder:
    """The environment as tools see it, its rewards added up."""

    def __init__(self, world: ScienceWorld) -> None:
        self._world = world
        self.total, self.done = 0.0, False
        self.reset, self.close = world.reset, world.close

    async def step(self, action: str) -> Any:
        result = await self._world.step(action)
        self.total, self.done = self.total + result.reward, result.done
        return result
