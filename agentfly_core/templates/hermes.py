"""Tool calls in the hermes form: JSON between ``<tool_call>`` and ``</tool_call>``.

What a model writes is hostile: everything that cannot be read becomes a ``CallError`` whose text tells the model what
to mend, each call on its own, and nothing raises.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from agentfly_core.types.messages import AssistantTurn, CallError, CallErrorKind, ToolCall

CALL_START = "<tool_call>"
CALL_END = "</tool_call>"
THINK_START = "<think>"
THINK_END = "</think>"

MAX_DEPTH = 100
"""Arguments nested deeper are refused: everything that walks them later may recurse."""

MAX_DIGITS = 4300
"""Longest integer, as Python's own default limit: the conversion takes quadratic time."""

_FORM = f'Write {CALL_START}{{"name": ..., "arguments": {{...}}}}{CALL_END}, with the tool\'s name and a JSON object.'


def parse_hermes(text: str, *, reasoning: bool = False) -> AssistantTurn:
    """A turn's text (without its end token) in parts.

    Args:
        text: as decoded.
        reasoning: the format has a thinking block: what stands before the first ``</think>`` is reasoning, and so
            is all of a text that opens with ``<think>`` and never closes it. Calls inside it are not run.
    """
    thought = None
    if reasoning:
        thought, text = _split_reasoning(text)
    content: list[str] = []
    calls: list[ToolCall | CallError] = []
    position = 0
    while (start := text.find(CALL_START, position)) >= 0:
        content.append(text[position:start])
        body = start + len(CALL_START)
        end = text.find(CALL_END, body)
        if end < 0:
            calls.append(_error(CallErrorKind.UNTERMINATED, f"a tool call has no closing {CALL_END}. {_FORM}"))
            position = len(text)
            break
        calls.append(read_call(text[body:end]))
        position = end + len(CALL_END)
    content.append(text[position:])
    return AssistantTurn("".join(content), thought, tuple(calls))


def _split_reasoning(text: str) -> tuple[str | None, str]:
    before, closed, after = text.partition(THINK_END)
    opened = before.lstrip().startswith(THINK_START)
    if not closed and not opened:
        return None, text
    return (before.lstrip()[len(THINK_START) :] if opened else before), after


def read_call(body: str) -> ToolCall | CallError:
    """One call from the JSON between its tags."""
    try:
        call = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return _error(CallErrorKind.INVALID_JSON, f"a tool call is not valid JSON: {reason}. {_FORM}")
    trouble = _trouble(call)  # first the depth: how deep the reader itself goes differs between Pythons
    if trouble is CallErrorKind.INVALID_JSON:
        return _error(trouble, f"a tool call is nested deeper than {MAX_DEPTH} levels. {_FORM}")
    if not isinstance(call, dict):
        return _error(CallErrorKind.NOT_AN_OBJECT, f"a tool call is {_kind(call)}, not a JSON object. {_FORM}")
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name:
        return _error(CallErrorKind.MISSING_NAME, f"a tool call has no name. {_FORM}")
    if trouble is CallErrorKind.LONE_SURROGATE:
        name = None if _trouble(name) else name
        text = "a tool call has half of a surrogate pair (an escape such as \\ud83d alone). Write the character itself."
        return _error(trouble, text, name)
    if "arguments" not in call:
        return _error(CallErrorKind.MISSING_ARGUMENTS, f"the call of {name:.60} has no arguments. {_FORM}", name)
    if not isinstance(arguments, dict):
        text = f"the arguments of {name:.60} are {_kind(arguments)}, not a JSON object. {_FORM}"
        return _error(CallErrorKind.ARGUMENTS_NOT_AN_OBJECT, text, name)
    return ToolCall(name, arguments)


def _trouble(value: Any) -> CallErrorKind | None:
    """What makes a parsed value unfit to be passed on; walks it without recursion."""
    level, depth, surrogate = [value], 0, False
    while level:
        if depth > MAX_DEPTH:
            return CallErrorKind.INVALID_JSON
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, str):
                surrogate = surrogate or not _is_unicode(item)
            elif isinstance(item, dict):
                deeper += item.keys()
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
        level, depth = deeper, depth + 1
    return CallErrorKind.LONE_SURROGATE if surrogate else None


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.20} is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is too large")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _error(kind: CallErrorKind, message: str, name: str | None = None) -> CallError:
    return CallError(kind, message, name)
