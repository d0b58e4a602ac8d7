"""How much of a goal is reached: conditions that hold now, under the best choice of objects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentfly_core.types import UsageError

Tree: TypeAlias = "str | list[Tree]"
Facts: TypeAlias = "set[tuple[str, ...]]"

FIXED = frozenset(
    {
        *("objecttype", "receptacletype", "receptacleatlocation"),
        *("cleanable", "heatable", "coolable", "toggleable", "sliceable"),
    }
)
"""Predicates that no action changes: they say which objects a goal means, and are no steps towards it."""
_WORD = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Goal:
    """A goal's formula, from PDDL."""

    formula: Tree

    @classmethod
    def read(cls, problem: str) -> Goal:
        """The goal of a PDDL problem.

        Raises:
            UsageError: it has none, or one of another form than conjunctions, ``exists``, atoms and ``not (= a b)``.
        """
        start = problem.lower().rfind("(:goal")
        if start < 0:
            raise UsageError("the game's problem has no (:goal ...)")
        words = _WORD.findall(re.sub(r";[^\n]*", "", problem[start:].lower()))
        tree = _tree(iter(words[1:]))
        if len(tree) != 2 or not isinstance(tree[1], list):
            raise UsageError("the game's goal is not one formula")
        _check(tree[1])
        return cls(tree[1])

    @property
    def conditions(self) -> int:
        """How many conditions it has."""
        return _count(self.formula)

    def reached(self, facts: Facts, kinds: Mapping[str, str]) -> int:
        """The most conditions that hold at once.

        Args:
            facts: (predicate, argument ...) in lower case.
            kinds: type by object.
        """
        by_kind: dict[str, list[str]] = defaultdict(list)
        for name, kind in kinds.items():
            by_kind[kind].append(name)
        best = _best(self.formula, {}, facts, by_kind)
        return 0 if best is None else best


def _tree(words: Iterator[str]) -> list[Tree]:
    """What stands between an opening bracket, read already, and its closing one."""
    stack: list[list[Tree]] = [[]]
    for word in words:
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            if not stack:
                return done
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    raise UsageError("the game's goal has an unclosed bracket")


def _check(formula: Any) -> None:
    if not isinstance(formula, list) or not formula or not isinstance(formula[0], str):
        raise UsageError(f"the game's goal holds {formula!r:.80}, which is no formula")
    head, *parts = formula
    if head == "and":
        for part in parts:
            _check(part)
    elif head == "exists" and len(parts) == 2 and isinstance(parts[0], list):
        _parameters(parts[0])
        _check(parts[1])
    elif head == "not" and len(parts) == 1 and isinstance(parts[0], list) and parts[0][:1] == ["="]:
        return
    elif head in ("exists", "not", "or", "forall", "imply", "when") or not all(isinstance(p, str) for p in parts):
        raise UsageError(f"the game's goal uses {head!r} in a way that is not known")


def _parameters(words: list[Any]) -> list[tuple[str, str]]:
    """``?a - agent ?l - location`` as pairs."""
    pairs: list[tuple[str, str]] = []
    open_names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            kind = next(rest, "")
            pairs += [(name, kind) for name in open_names]
            open_names = []
        else:
            open_names.append(str(word))
    if open_names:
        raise UsageError("the game's goal has a variable without a type")
    return pairs


def _count(formula: Any) -> int:
    head, *parts = formula
    if head == "and":
        return sum(map(_count, parts))
    if head == "exists":
        return _count(parts[1])
    return int(head != "not" and head not in FIXED)


def _best(formula: Any, bound: dict[str, str], facts: Facts, by_kind: Mapping[str, list[str]]) -> int | None:
    """Conditions that hold under the best choice of what is not bound yet; None if no choice is allowed."""
    head, *parts = formula
    if head == "exists":
        return _best_choice(_parameters(parts[0]), parts[1], bound, facts, by_kind)
    if head == "and":
        total = 0
        for part in sorted(parts, key=_count):  # what rules a choice out comes first
            best = _best(part, bound, facts, by_kind)
            if best is None:
                return None
            total += best
        return total
    if head == "not":
        first, second = (bound.get(word, word) for word in parts[0][1:])
        return 0 if first != second else None
    holds = (head, *(bound.get(word, word) for word in parts)) in facts
    if head in FIXED:
        return 0 if holds else None
    return int(holds)


def _best_choice(
    parameters: list[tuple[str, str]],
    body: Any,
    bound: dict[str, str],
    facts: Facts,
    by_kind: Mapping[str, list[str]],
) -> int | None:
    if not parameters:
        return _best(body, bound, facts, by_kind)
    (name, kind), *rest = parameters
    best: int | None = None
    for value in by_kind.get(kind, ()):
        inner = {**bound, name: value}
        if not _allowed(body, inner, facts):
            continue
        found = _best_choice(rest, body, inner, facts, by_kind)
        if found is not None and (best is None or found > best):
            best = found
    return best


def _allowed(formula: Any, bound: Mapping[str, str], facts: Facts) -> bool:
    """Whether no fixed condition, all of whose variables are bound, rules the choice out."""
    head, *parts = formula
    if head == "and":
        return all(_allowed(part, bound, facts) for part in parts)
    if head == "exists":
        return _allowed(parts[1], bound, facts)
    if head not in FIXED:
        return True
    arguments = [bound.get(word, word) for word in parts]
    return any(a.startswith("?") for a in arguments) or (head, *arguments) in facts
