"""Plain data as JSON and back. Whatever is decoded is of the builtin types themselves: it brings no code along."""

from __future__ import annotations

import math
from collections.abc import Callable, KeysView, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

MAX_DEPTH = 60
MAX_INT_BITS = 1_000_000
MAX_RANGE = 10_000_000
"""Numbers in a range: whoever gets it may make a list of them."""

_SCALARS: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16), "f": float, "b": bytes.fromhex, "ba": bytearray.fromhex,
}  # fmt: skip
_NOT_FINITE = (["f", "nan"], ["f", "inf"], ["f", "-inf"])
_BUILDERS: dict[str, Any] = {
    "l": list, "t": tuple, "s": set, "fs": frozenset, "k": lambda keys: dict.fromkeys(keys).keys(),
}  # fmt: skip

Keep = Callable[[Any], "list[Any]"]


class Unfit(ValueError):
    """No plain data, or too deep."""


def encode(value: Any, other: Keep | None = None, depth: int = 0) -> Any:
    """JSON of a value: plain scalars as they are, everything else as a list that begins with its kind.

    Args:
        other: what to make of a value that is no plain data.

    Raises:
        Unfit: it is too deep, or no plain data where ``other`` is None.
    """
    if depth > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int(value)
        if number.bit_length() > MAX_INT_BITS:
            raise Unfit(f"an integer of {number.bit_length()} bits is too large")
        return ["i", hex(number)] if number.bit_length() > 64 else number
    if isinstance(value, float):
        real = float(value)
        return real if math.isfinite(real) else ["f", repr(real)]
    if isinstance(value, complex):
        return ["c", encode(value.real), encode(value.imag)]
    if isinstance(value, bytes | bytearray):
        return ["b" if isinstance(value, bytes) else "ba", bytes(value).hex()]
    for kind, types in (("l", list), ("t", tuple), ("s", set), ("fs", frozenset)):
        if isinstance(value, types):
            return [kind, [encode(item, other, depth + 1) for item in value]]
    if isinstance(value, Mapping):
        pairs = [[encode(k, other, depth + 1), encode(v, other, depth + 1)] for k, v in value.items()]
        return ["d", pairs]
    if isinstance(value, range):
        return ["r", *_bounded(value)]
    if isinstance(value, KeysView):
        return ["k", [encode(key, other, depth + 1) for key in value]]
    if isinstance(value, AbstractSet):
        return encode(set(value), other, depth)
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), other, depth + 1)
    if other is None:
        raise Unfit(f"{type(value).__name__} is no plain data")
    return other(value)


def check(data: Any, depth: int = 0) -> None:
    """Look at the form of what ``encode`` made with ``["o", number, name, specials]`` for other objects.

    No dict or set is built of it, whose cost is quadratic for keys that hash alike; this is linear.

    Raises:
        Unfit: it was not made so.
    """
    if depth > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH}")
    if data is None or isinstance(data, bool | int | float | str):
        return
    if not isinstance(data, list):
        raise Unfit("malformed data")
    try:
        kind, *content = data
        if kind in _SCALARS:
            _SCALARS[kind](*content)
        elif kind == "c":
            if len(content) != 2 or not all(isinstance(p, float) or p in _NOT_FINITE for p in content):
                raise Unfit("malformed complex number")
        elif kind == "r":
            _bounded(_range(content))
        elif kind == "o":
            number, name, specials = content
            if type(number) is not int or not all(isinstance(text, str) for text in (name, *specials)):
                raise Unfit("malformed reference")
        elif kind == "d":
            for key, item in _only(content):
                check(key, depth + 1)
                check(item, depth + 1)
        elif kind in _BUILDERS:
            for item in _only(content):
                check(item, depth + 1)
        else:
            raise Unfit(f"unknown kind {kind!r:.50}")
    except Unfit:
        raise
    except (TypeError, ValueError) as error:
        raise Unfit(f"malformed data: {error!s:.200}") from None


def _range(content: list[Any]) -> range:
    if len(content) != 3 or not all(type(part) is int for part in content):
        raise Unfit("malformed range")
    return range(*content)


def _bounded(numbers: range) -> list[int]:
    """Its start, stop and step."""
    parts = [numbers.start, numbers.stop, numbers.step]
    if any(part.bit_length() > 62 for part in parts) or len(numbers) > MAX_RANGE:
        raise Unfit(f"a range of more than {MAX_RANGE} numbers is too long")
    return parts


def _only(content: list[Any]) -> list[Any]:
    (items,) = content
    if not isinstance(items, list):
        raise Unfit("malformed data")
    return items


def decode(data: Any, other: Callable[[list[Any]], Any] | None = None, depth: int = 0) -> Any:
    """The value of what ``encode`` made.

    Args:
        other: what to make of a list of another kind.

    Raises:
        Unfit: it was not made by ``encode``.
    """
    if depth > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH}")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    try:
        kind, *rest = data
        if kind in _SCALARS:
            return _SCALARS[kind](rest[0])
        if kind == "c":
            return complex(decode(rest[0]), decode(rest[1]))
        if kind == "r":
            return _range(rest)
        if kind == "d":
            return {decode(k, other, depth + 1): decode(v, other, depth + 1) for k, v in rest[0]}
        if kind in _BUILDERS:
            return _BUILDERS[kind](decode(item, other, depth + 1) for item in rest[0])
    except Unfit:
        raise
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise Unfit(f"malformed data: {error}") from None
    if other is None:
        raise Unfit(f"unknown kind {kind!r}")
    return other(data)
