"""Conversation data: the messages users write and the calls a model makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict, TypeGuard

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A value that survives ``json.dumps``."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class TextPart(TypedDict):
    """A piece of text in a message of several parts."""

    type: Literal["text"]
    text: str


class ImagePart(TypedDict):
    """An image in a message. ``image`` is a PIL image, a path or raw encoded bytes."""

    type: Literal["image"]
    image: Any


Content: TypeAlias = "str | Sequence[TextPart | ImagePart]"


class _MessageBase(TypedDict):
    role: Role
    content: Content


class Message(_MessageBase, total=False):
    """One chat message in the common (OpenAI) shape. Role and content are required.

    ``tool_calls`` holds ``{"type": "function", "function": {"name": ..., "arguments": {...}}}`` entries.
    """

    name: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    reasoning_content: str


class ToolSchema(TypedDict):
    """What a model is shown of a tool: ``{"type": "function", "function": {name, description, parameters}}``."""

    type: Literal["function"]
    function: dict[str, Any]


class CallErrorKind(str, Enum):
    """Why a tool call in a model's output cannot be run."""

    INVALID_JSON = "invalid_json"
    UNTERMINATED = "unterminated"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_NAME = "missing_name"
    MISSING_ARGUMENTS = "missing_arguments"
    ARGUMENTS_NOT_AN_OBJECT = "arguments_not_an_object"
    LONE_SURROGATE = "lone_surrogate"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed call: whether the tool exists and the arguments fit is decided by the agent."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallError:
    """A call that could not be run. ``message`` is written for the model, which gets it as an observation."""

    kind: CallErrorKind
    message: str
    name: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """A generation as parsed by the chat template.

    Attributes:
        content: visible text outside reasoning and calls, as sampled (not stripped).
        reasoning: text of the thinking block, or None where there is none.
        calls: good calls and errors in the order in which the model wrote them.
        cut: whether the token limit ended it. Set by the rollout engine, for the agent; a template leaves it alone.
    """

    content: str
    reasoning: str | None = None
    calls: tuple[ToolCall | CallError, ...] = ()
    cut: bool = False


def text_of(content: Content) -> str:
    """The text of a message's content; images are left out."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def is_content(value: object) -> TypeGuard[Content]:
    """Whether a model can be shown it: text, or a sequence of text and image parts."""
    if isinstance(value, str):
        return True
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return False
    kinds = {"text": "text", "image": "image"}
    return all(isinstance(p, Mapping) and p.get("type") in kinds and kinds[p["type"]] in p for p in value)
