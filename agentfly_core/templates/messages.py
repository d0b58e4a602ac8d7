"""What a message must be like to be rendered, and JSON as chat templates write it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentfly_core.types.errors import UsageError
from agentfly_core.types.messages import Message

ROLES = ("system", "user", "assistant", "tool")


def to_json(value: Any) -> str:
    """JSON as Hugging Face's ``tojson`` writes it: ``", "`` and ``": "``, keys in their order, nothing escaped.

    Jinja's own ``tojson`` sorts keys and escapes HTML, which no model was trained on.
    """
    return json.dumps(value, ensure_ascii=False)


def role_of(message: Message, where: str, roles: Collection[str] = ROLES) -> str:
    """The message's role.

    Raises:
        UsageError: it is no message, or its role is none of ``roles``.
    """
    if not isinstance(message, Mapping):
        raise UsageError(f"{where}: a message is a mapping with 'role' and 'content', got {message!r:.80}")
    role = message.get("role")
    if role not in roles:
        raise UsageError(f"{where}.role: {role!r} is not one of {', '.join(roles)}")
    return str(role)


def content_of(message: Message, where: str) -> str:
    """The message's content as text; parts of text are joined. An assistant with tool calls may have none.

    Raises:
        UsageError: it is missing, no text, or has a part that is no text.
    """
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        if message.get("role") == "assistant" and message.get("tool_calls"):
            return ""
        raise UsageError(f'{where}.content: is missing; write "" for an empty message')
    if not isinstance(content, Sequence):
        raise UsageError(f"{where}.content: must be text or a list of parts, got {type(content).__name__}")
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            what = f"a part of type {kind!r}" if kind != "text" else "a text part without text"
            raise UsageError(f"{where}.content[{i}]: this template carries text only, got {what}")
        texts.append(part["text"])
    return "".join(texts)


def calls_of(message: Message, where: str) -> list[tuple[str, Any]]:
    """Name and arguments of each of the message's ``tool_calls``, given as ``{"function": {...}}`` or flat.

    Raises:
        UsageError: one has no name or no arguments.
    """
    result = []
    for i, entry in enumerate(message.get("tool_calls") or ()):
        here = f"{where}.tool_calls[{i}]"
        call = entry.get("function", entry) if isinstance(entry, Mapping) else entry
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise UsageError(
                f"{here}: must be {{'function': {{'name': ..., 'arguments': {{...}}}}}}, got {entry!r:.80}"
            )
        if "arguments" not in call:
            raise UsageError(f"{here}.arguments: is missing; write {{}} for none")
        result.append((call["name"], call["arguments"]))
    return result


def raw_message(text: str) -> Message:
    """A sampled turn as history keeps it: its text, nothing parsed."""
    return {"role": "assistant", "content": text}
