"""Conversations in which a game is won by its walkthrough: for a supervised start (``agentfly sft``)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

from agentfly_core.types import Message, Task, ToolContext, UnknownName, text_of
from agentfly_envs_alfworld.actions import action_tools, as_call
from agentfly_envs_alfworld.environment import ALFWorld
from agentfly_envs_alfworld.tasks import Kind, alfworld_tasks

Form: TypeAlias = Literal["text", "tools"]


def demonstrations(
    seed: int = 0,
    *,
    form: Form = "text",
    games: Kind = "auto",
    subset: str = "train",
    task_types: Sequence[str] = (),
    data: str | None = None,
    limit: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows with ``messages``, one a game. The games are played as the rows are asked for.

    Args:
        form: ``text``: raw text actions. ``tools``: tool calls, in rows with ``tools`` for the prompt.
        games, subset, task_types, data: which games, see ``alfworld_tasks``.
        limit: only so many games, and then again from the first.
    """
    if form not in get_args(Form):
        raise UnknownName("form of demonstrations", str(form), get_args(Form))
    tasks = alfworld_tasks("train", seed, games=games, subset=subset, task_types=task_types, data=data)
    world = ALFWorld(max_steps=10_000)
    try:
        for task in itertools.islice(tasks, limit):
            yield {"messages": asyncio.run(_play(world, task, form))}
    finally:
        asyncio.run(world.close())


async def _play(world: ALFWorld, task: Task, form: Form) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": (await world.reset(task, 0)).content}]
    tools = {tool.name: tool for tool in action_tools()}
    for command in world.walkthrough():
        if form == "text":
            result = await world.step(command)
            reply: Message = {"role": "assistant", "content": command}
            answer: Message = {"role": "user", "content": result.observation}
        else:
            name, arguments = as_call(command)
            outcome = await tools[name].call(arguments, ToolContext(environment=world))
            calls = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
            reply = {"role": "assistant", "content": "", "tool_calls": calls}
            answer = {"role": "tool", "content": text_of(outcome.content), "name": name}
        messages += [reply, answer]
    return messages[:-1]
