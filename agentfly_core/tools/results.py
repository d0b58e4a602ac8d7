"""From what a tool returned to what the model sees."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentfly_core.types.messages import Content, ImagePart, TextPart
from agentfly_core.types.tools import ToolResult


def to_result(value: Any, max_chars: int) -> ToolResult:
    """Text stays as it is, an image becomes an image part, everything else its JSON (None is ``null``).

    Raises:
        ValueError, TypeError, AttributeError: there is no JSON form, or a ``ToolResult`` is filled wrongly.
    """
    if not isinstance(value, ToolResult):
        return ToolResult(to_content(value, max_chars))
    metrics = {str(name): float(number) for name, number in value.metrics.items()}
    return ToolResult(to_content(value.content, max_chars), bool(value.final), bool(value.error), metrics)


def cut(text: str, max_chars: int) -> str:
    """``text`` with its middle taken out where it is longer than ``max_chars``, and a note of how much is gone."""
    if len(text) <= max_chars:
        return text
    kept = max(max_chars - 60, 0)  # room for the note
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    return f"{head}\n[... {len(text) - kept} characters left out ...]\n{tail}"


def to_content(value: Any, max_chars: int) -> Content:
    """What the model is shown of a tool's return value, or of an environment's observation.

    Raises:
        ValueError: there is no JSON form.
    """
    if isinstance(value, str):
        return _clean(cut(str.__str__(value), max_chars))
    if _is_image(value):
        return [ImagePart(type="image", image=value)]
    if isinstance(value, list | tuple) and _are_parts(value):
        return _parts(value, max_chars)
    return _clean(cut(_to_json(value), max_chars))


def _parts(values: Sequence[Any], max_chars: int) -> list[TextPart | ImagePart]:
    parts: list[TextPart | ImagePart] = []
    for value in values:
        if _is_image(value):
            parts.append(ImagePart(type="image", image=value))
        elif isinstance(value, str):
            parts.append(TextPart(type="text", text=_clean(cut(value, max_chars))))
        elif value["type"] == "text":
            parts.append(TextPart(type="text", text=_clean(cut(value["text"], max_chars))))
        else:
            parts.append(ImagePart(type="image", image=value["image"]))
    return parts


def _are_parts(values: Sequence[Any]) -> bool:
    shown = [_is_image(v) or _is_part(v) for v in values]
    return any(shown) and all(is_part or isinstance(v, str) for is_part, v in zip(shown, values, strict=True))


def _is_part(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return (value.keys() == {"type", "text"} and value["type"] == "text" and isinstance(value["text"], str)) or (
        value.keys() == {"type", "image"} and value["type"] == "image"
    )


def _is_image(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")  # without it no value can be an image
    return module is not None and isinstance(value, module.Image)


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_default)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the return value has no JSON form: {error}") from error


def _default(value: Any) -> Any:
    """JSON forms of dates, dataclasses, pydantic models, sets and the like, and of arrays."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    if isinstance(value, Iterator):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise TypeError(f"{type(value).__name__} has no JSON form") from error


def _clean(text: str) -> str:
    """Lone surrogates, which no tokenizer takes, become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
