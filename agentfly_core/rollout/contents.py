"""What messages hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentfly_core.types import Content, Message, text_of


def images_of(messages: Sequence[Message]) -> list[Any]:
    """The images of messages, in order."""
    contents = (m["content"] for m in messages if not isinstance(m["content"], str))
    return [part["image"] for content in contents for part in content if part["type"] == "image"]


def text_length(contents: Iterable[Content]) -> int:
    """Characters of all texts."""
    return sum(len(content) if isinstance(content, str) else len(text_of(content)) for content in contents)
