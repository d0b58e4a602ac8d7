"""Agents whose observations go on within the message that was being sampled."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.types import Agent, HistoryMode, Message, UsageError, text_of


def continues(agent: Agent) -> bool:
    """Whether the agent says so of itself."""
    return bool(getattr(agent, "continues", False))


def check_history(agent: Agent, history: HistoryMode) -> None:
    """Refuse what would be rendered anew: a template knows no message that was sampled in parts.

    Raises:
        UsageError: the agent continues its turns, and history is not kept as it is.
    """
    if continues(agent) and history != "append":
        raise UsageError(
            f"model.history: {history} renders whole messages anew, but the agent {agent.name!r} goes on within its "
            "own: use history: append, or another agent"
        )


def continuation(messages: Sequence[Message]) -> str:
    """The text of an observation that goes on within a turn.

    Raises:
        UsageError: there is more than text in it.
    """
    parts = (part for m in messages if not isinstance(m["content"], str) for part in m["content"])
    if any(part["type"] != "text" for part in parts):
        raise UsageError("an observation within a turn carries text only, got an image")
    return "".join(text_of(message["content"]) for message in messages)
