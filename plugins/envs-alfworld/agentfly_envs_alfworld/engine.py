"""TextWorld's planner-backed engine, without what it computes again and again. One game at a time, one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly_core.types import MissingDependency, UsageError
from agentfly_envs_alfworld.games import Game
from agentfly_envs_alfworld.names import player_names
from agentfly_envs_alfworld.rules import Rules, Scope, read_rules
from agentfly_envs_alfworld.translation import Translation, translate

NOTHING = "Nothing happens."
"""What the engine says to a command that is not possible now."""


_idle: list[Any] = []
"""Copies of the planner's library that no engine uses. They are used again and never unloaded: a process that loads one
after another was unloaded crashes."""


@dataclass(frozen=True)
class Operator:
    """A possible action in the current state, as the planner's library numbers them."""

    id: int
    name: str
    effects: int


class Engine:
    """Plays games. The state is the planner's own library's, the texts are the game's rules'.

    Raises:
        MissingDependency: TextWorld or its planner is not installed.
    """

    def __init__(self) -> None:
        try:
            import fast_downward  # noqa: F401
            import textworld.logic  # noqa: F401
        except ImportError as error:
            raise MissingDependency("textworld", "the environment 'alfworld'", "textworld[pddl]>=1.7") from error
        self._library: Any = _take_library()
        self._game: Game | None = None

    def start(self, game: Game) -> str:
        """Begin the game and return its introduction.

        Raises:
            UsageError: the game's problem or rules cannot be read.
        """
        if game is not self._game:
            self._load(game)
        self._library.load_sas(self._translation.sas.encode())
        self._state = self._first_state()
        if not self._entities:
            self._name_entities()
        self._look()
        return self._rules.text("#intro#", Scope(self._state, self._entities, {}, {}))

    def step(self, command: str) -> str:
        """Carry out one of ``commands`` and return the text; any other command changes nothing."""
        operator = self.commands.get(command)
        if operator is None:
            return NOTHING
        self._apply(operator)
        name, mapping = self._bound(operator)
        text = self._rules.text(self._rules.actions[name].feedback_rule, self._scope(mapping))
        self._look()
        return text

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        return bool(self._library.check_goal())

    @property
    def kinds(self) -> Mapping[str, str]:
        """Type by object, in lower case."""
        return self._translation.objects

    @property
    def facts(self) -> set[tuple[str, ...]]:
        """What holds now: (predicate, argument ...) in lower case."""
        return {
            (fact.name, *(v.name for v in fact.arguments))
            for fact in self._state.facts
            if not fact.name.startswith(("not_", "new-axiom@"))
        }

    def close(self) -> None:
        """Give the planner's library back; calling it twice does nothing."""
        if self._library is not None:
            _idle.append(self._library)
            self._library = self._game = None

    def _load(self, game: Game) -> None:
        from textworld.logic import GameLogic, Type

        self._game = None
        try:
            self._translation: Translation = translate(game.domain, game.problem)
        except (Exception, SystemExit) as error:  # the translator's parser asserts, raises and exits as it likes
            raise UsageError(f"{game.name}: its problem cannot be read: {type(error).__name__}: {error}") from error
        self._rules: Rules = read_rules(game.grammar)
        self._logic = GameLogic()
        for name, supertypes in self._translation.types:
            with contextlib.suppress(ValueError):  # ``object`` is in it from the start, and may be declared again
                self._logic.types.add(Type(name, supertypes))
        self._entities: dict[str, Any] = {}
        self._commands: dict[str, str] = {}
        self._game = game

    def _first_state(self) -> Any:
        import fast_downward
        from textworld.logic import Proposition, State, Variable

        kinds = self._translation.objects
        state = State(self._logic)
        for predicate, *arguments in self._translation.facts:
            state.add_fact(Proposition(predicate, [Variable(a, kinds[a]) for a in arguments]))
        atoms = (fast_downward.Atom * self._library.get_state_size())()
        self._library.get_state(atoms)
        for atom in atoms:
            fact = self._proposition(atom.name)
            if not fact.name.startswith("not_"):
                state.add_fact(fact)
        return state

    def _name_entities(self) -> None:
        from textworld.generator.game import EntityInfo

        kinds = {v.name: v.type for fact in self._state.facts for v in fact.arguments}
        names = player_names(kinds)
        for identifier, kind in kinds.items():
            entity = EntityInfo(identifier, kind)
            entity.name, entity.definite, entity.indefinite = names[identifier], "the", "a"
            self._entities[identifier] = entity

    def _proposition(self, atom: str) -> Any:
        """``Atom opened(drawer)`` or ``NegatedAtom ...``, whose proposition's name begins with ``not_``."""
        from textworld.logic import Proposition, Variable

        sign, _, rest = atom.partition(" ")
        predicate, _, inside = rest.partition("(")
        kinds = self._translation.objects
        arguments = [Variable(a, kinds[a]) for a in inside[:-1].split(", ") if a]
        return Proposition(f"not_{predicate}" if sign == "NegatedAtom" else predicate, arguments)

    def _apply(self, operator: Operator) -> None:
        import fast_downward

        effects = (fast_downward.Atom * operator.effects)()
        self._library.apply_operator(operator.id, effects)
        for effect in effects:
            fact = self._proposition(effect.name)
            self._state.remove_fact(fact.negate())
            self._state.add_fact(fact)

    def _look(self) -> None:
        """Find the possible commands. A command's words depend on its operator and on what never changes."""
        import fast_downward

        operators = (fast_downward.Operator * self._library.get_applicable_operators_count())()
        self._library.get_applicable_operators(operators)
        self.commands: dict[str, Operator] = {}
        for found in operators:
            operator = Operator(found.id, found.name, found.nb_effect_atoms)
            command = self._commands.get(operator.name)
            if command is None:
                command = self._commands[operator.name] = self._command(operator)
            self.commands.setdefault(command, operator)

    def _command(self, operator: Operator) -> str:
        name, mapping = self._bound(operator)
        return self._rules.text(self._rules.actions[name].template, self._scope(mapping))

    def _bound(self, operator: Operator) -> tuple[str, Mapping[Any, Any]]:
        """The action's name, and what stands for each of its parameters."""
        from textworld.logic import Placeholder, Variable

        name, *arguments = operator.name.split()
        parameters: Sequence[tuple[str, str]] = self._translation.actions[name]
        pairs = zip(parameters, arguments, strict=False)
        return name, {Placeholder(p, kind): Variable(a, kind) for (p, kind), a in pairs}

    def _scope(self, mapping: Mapping[Any, Any]) -> Scope:
        variables = {p.name: self._entities[v.name] for p, v in mapping.items()}
        return Scope(self._state, self._entities, variables, mapping)


def _take_library() -> Any:
    """A copy of the planner's library, which holds one state, for one engine alone."""
    import fast_downward

    try:
        return _idle.pop()
    except IndexError:
        return fast_downward.load_lib()
