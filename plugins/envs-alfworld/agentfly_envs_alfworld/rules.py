"""A game's text rules (``.twl2``): parsed once for all games, and turned into text.

The stock engine parses the same rules for every game and copies whole contexts at every symbol. The parser is
TextWorld's own; the derivation follows it symbol for symbol, so that transcripts are the same.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly_core.types import UsageError
from agentfly_envs_alfworld.expressions import evaluate

_TASK = re.compile(r'("rhs"\s*:\s*"Your task is to: )((?:[^"\\]|\\.)*)(")')
_PLAIN = re.compile(r"[^;|\"<>\[\]#{}\\]*")
"""What the grammar takes as plain text."""


@dataclass(frozen=True)
class Scope:
    """What a rule can see.

    Attributes:
        state: the facts, as a ``textworld.logic.State``.
        entities: by identifier.
        variables: entities by the names that the rule uses.
        mapping: the same as placeholders and variables of the logic.
    """

    state: Any
    entities: Mapping[str, Any]
    variables: Mapping[str, Any]
    mapping: Mapping[Any, Any]


@dataclass(frozen=True)
class Rules:
    """The rules of one game.

    Attributes:
        actions: by lower-case name; each with ``template`` and ``feedback_rule``.
        symbols: productions by symbol.
        task: the sentence that takes the place of the task's rule; None where the rules have none to replace.
    """

    actions: Mapping[str, Any]
    symbols: Mapping[str, Sequence[Any]]
    task: str | None

    def text(self, source: str, scope: Scope) -> str:
        """The text that ``source`` (a template or ``#symbol#``) derives to."""
        return self._render(_symbols(source), scope)

    def _render(self, symbols: Sequence[Any], scope: Scope) -> str:
        return "".join(self._one(symbol, scope) for symbol in symbols)

    def _one(self, symbol: Any, scope: Scope) -> str:
        kind = type(symbol).__name__
        if kind == "TerminalSymbol":
            return str(symbol.symbol)
        if kind == "NonterminalSymbol":
            return self._expand(str(symbol.symbol), scope)
        if kind == "EvalSymbol":
            return evaluate(symbol.expression, scope.variables)
        if kind == "ConditionalSymbol":
            return "".join(self._each(symbol, scope))
        if kind == "ListSymbol":
            return self._listed(list(self._each(symbol.symbol, scope)), scope)
        raise UsageError(f"the game's text rules hold a {kind}, which is not known")

    def _expand(self, name: str, scope: Scope) -> str:
        if name == "task" and self.task is not None:
            return f"Your task is to: {self.task}"
        for rule in self.symbols.get(name, ()):
            if not rule.condition or next(_matches(rule.condition, scope), None) is not None:
                return self._render(rule.rhs, scope)
        raise UsageError(f"the game's text rules say nothing for {name!r}")

    def _each(self, symbol: Any, scope: Scope) -> Iterator[str]:
        """The text of the symbol's expression for every match of its condition."""
        if not symbol.given:
            yield self._one(symbol.expression, scope)
            return
        for mapping in _matches(symbol.given, scope):
            found = {placeholder.name: scope.entities[variable.name] for placeholder, variable in mapping.items()}
            inner = Scope(scope.state, scope.entities, {**scope.variables, **found}, {**scope.mapping, **mapping})
            yield self._one(symbol.expression, inner)

    def _listed(self, parts: list[str], scope: Scope) -> str:
        if not parts:
            return self._expand("list_empty", scope)
        if len(parts) == 1:
            return parts[0]
        between, last = self._expand("list_separator", scope), self._expand("list_last_separator", scope)
        return between.join(parts[:-1]) + last + parts[-1]


def read_rules(text: str) -> Rules:
    """The rules of a game's grammar. Games differ in one sentence, the task, so the rest is parsed once.

    Raises:
        UsageError: they cannot be parsed.
    """
    found = _TASK.findall(text)
    if len(found) == 1 and _PLAIN.fullmatch(found[0][1]):
        actions, symbols = _parse(_TASK.sub(r"\1\3", text))
        return Rules(actions, symbols, found[0][1])
    actions, symbols = _parse(text)
    return Rules(actions, symbols, None)


@functools.lru_cache(maxsize=4)
def _parse(text: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    from textworld.envs.pddl.logic import GameLogic

    try:
        logic = GameLogic(domain="", grammar=text)
    except Exception as error:  # the parser's own errors share no base class
        raise UsageError(f"the game's text rules cannot be parsed: {type(error).__name__}: {error}"[:500]) from error
    return dict(logic.actions), dict(logic.grammar._rules)


@functools.lru_cache(maxsize=256)
def _symbols(source: str) -> tuple[Any, ...]:
    from textworld.envs.pddl import textgen

    return tuple(textgen._parse_and_convert(source, rule_name="symbols"))


@functools.lru_cache(maxsize=256)
def _query(condition: str) -> Any:
    from textworld.logic import Rule

    return Rule.parse_conjunctive_query(condition)


def _matches(condition: str, scope: Scope) -> Iterator[Any]:
    """Assignments that make the condition true, in a fixed order."""
    matches: Iterator[Any] = scope.state.all_assignments(_query(condition), scope.mapping)
    return matches
