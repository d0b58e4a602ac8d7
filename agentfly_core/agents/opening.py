"""What the agents of this package have in common: how a chain begins."""

from __future__ import annotations

from agentfly_core.types import Message, Observation, Task


def opening_messages(task: Task, observation: Observation | None, system_prompt: str | None) -> list[Message]:
    """The system prompt (unless the task brings its own), the task's messages, the environment's first observation."""
    messages: list[Message] = []
    if system_prompt is not None and not any(m["role"] == "system" for m in task.messages):
        messages.append({"role": "system", "content": system_prompt})
    messages += task.messages
    if observation is not None:
        messages.append({"role": "user", "content": observation.content})
    return messages
