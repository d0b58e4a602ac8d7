"""The optional members of an agent, as an engine takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentfly_core.types import Agent, HistoryMode, Message, Tool, UsageError, text_of


def continues(agent: Agent) -> bool:
    """Whether its observations go on within the message that was being sampled."""
    return bool(getattr(agent, "continues", False))


def check_agent(agent: Agent, history: HistoryMode, tools: Mapping[str, Tool] | None) -> None:
    """Refuse what the agent cannot work with, before anything starts.

    Args:
        tools: None where an environment's join them later.

    Raises:
        UsageError: the agent refuses its tools; or it goes on within its turns, and history is not kept as it is: a
            template cannot render anew what was sampled in parts.
    """
    if continues(agent) and history != "append":
        raise UsageError(
            f"model.history: {history} renders whole messages anew, but the agent {agent.name!r} goes on within its "
            "own: use history: append, or another agent"
        )
    check = getattr(agent, "check_tools", None)
    if check is not None and tools is not None:
        check(tools)


def continuation(messages: Sequence[Message]) -> str:
    """The text of an observation that goes on within a turn.

    Raises:
        UsageError: there is more than text in it.
    """
    parts = (part for m in messages if not isinstance(m["content"], str) for part in m["content"])
    if any(part["type"] != "text" for part in parts):
        raise UsageError("an observation within a turn carries text only, got an image")
    return "".join(text_of(message["content"]) for message in messages)
