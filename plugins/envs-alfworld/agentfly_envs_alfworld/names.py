"""From the engine's identifiers to the names that players read, as ALFWorld's own demangler gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_SIGNS = (("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_"), (",", "_comma_"))


def mangle(identifier: str) -> str:
    """``Mug|+01.2|-00.5`` as PDDL can carry it."""
    for sign, word in _SIGNS:
        identifier = identifier.replace(sign, word)
    return identifier


def player_names(identifiers: Iterable[str]) -> dict[str, str]:
    """``mug_bar_...`` to ``mug 2``: things of one kind are numbered, the last identifier in order is number 1.

    Identifiers without a place (``agent1``, ``mugtype``) keep their text and a trailing blank.
    """
    ordered = sorted(set(identifiers))
    left = Counter(kind for kind in map(_kind, ordered) if kind)
    names = {}
    for identifier in ordered:
        kind = _kind(identifier)
        if kind:
            names[identifier] = f"{kind} {left[kind]}"
            left[kind] -= 1
        else:
            names[identifier] = f"{_plain(identifier)} "
    return names


def _kind(identifier: str) -> str:
    """``sink_bar_..._bar_sinkbasin`` is a sinkbasin; the empty string where there is no place in it."""
    head, found, _ = identifier.partition("_bar_")
    if not found:
        return ""
    return _plain(head) + ("basin" if "basin" in identifier else "")


def _plain(text: str) -> str:
    for sign, word in _SIGNS[1:]:
        text = text.replace(word, sign)
    return text
