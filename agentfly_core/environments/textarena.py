"""Games of TextArena as text worlds, one seat played by the agent."""

from __future__ import annotations

import importlib
import inspect
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agentfly_core.environments.seeded import episode_seed, seeded_tasks
from agentfly_core.registry import import_target
from agentfly_core.types import MissingDependency, Observation, Split, StepResult, Task, UsageError

_NAME = "environment 'textarena'"
_MOST_PLAYERS = 15
_MOST_MOVES = 1000
"""Of opponents in a row: one that never makes a valid move would go on for ever."""
_OFFERED = re.compile(r"'(\[[^\[\]\n]{1,80}\])'")
"""A move as the games write those that they offer: '[4]'."""
_randomness = threading.Lock()


class TextArenaEnvironment:
    """One game of TextArena. The agent has one seat; ``opponent`` plays the others.

    An observation is what the game has said since the agent's last move, its own moves left out: the chain already
    has the rest. The reward is what the game pays the agent's seat at its end (1, 0 or -1 in most games).
    The games draw from Python's global random numbers: each environment keeps a state of its own for them, so that
    episodes repeat, whatever runs beside them.

    Args:
        id: of the game: ``TicTacToe-v0``. Its observation wrappers are for the opponents alone.
        arguments: of the game's class, in place of its registered ones.
        players: how many; by default as few as the game takes.
        seat: the agent's.
        opponent: ``random``: any of the moves that the game last offered (most board and card games offer them as
            '[4]'). Or ``module:function``, called with the game's text for that player and returning the move; a class
            is made without arguments first, once a seat and episode, as TextArena's own agents can be.
    """

    def __init__(
        self,
        *,
        id: str,
        arguments: Mapping[str, Any] | None = None,
        players: int | None = None,
        seat: int = 0,
        opponent: str = "random",
    ) -> None:
        if players is not None and not 0 < players <= _MOST_PLAYERS:
            raise UsageError(f"{_NAME}: players must be from 1 to {_MOST_PLAYERS}, got {players}")
        if seat < 0 or (players is not None and seat >= players):
            raise UsageError(f"{_NAME}: there is no seat {seat}; the first is 0")
        if opponent != "random" and ":" not in opponent:
            raise UsageError(f"{_NAME}: opponent must be 'random' or module:function, got {opponent!r}")
        self._id, self._arguments, self._players = id, dict(arguments or {}), players
        self._seat, self._opponent = seat, opponent
        self._random: Any = None
        self._game: Any = None
        self._over = True

    @staticmethod
    def tasks(split: Split, seed: int = 0) -> Iterable[Task]:
        """Games without end, each with a seed of its own."""
        return seeded_tasks("textarena", split, seed)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin a game with the task's field ``seed``, or with ``seed``; opponents before the agent move.

        Raises:
            UsageError: there is no such game, or it cannot be played so.
            MissingDependency: TextArena is not installed.
        """
        self._over = True  # until the game has begun
        with self._own_randomness():
            self._begin(episode_seed(task, seed))
            self._over = self._let_others_move(done=False)
            return Observation(self._news())

    async def step(self, action: str) -> StepResult:
        """Move, and let the others move until it is the agent's turn again."""
        if self._over:
            return StepResult("The game is over.", terminated=True)
        with self._own_randomness():
            done, _ = self._game.step(action)
            self._over = self._let_others_move(done)
            return self._result()

    async def close(self) -> None:
        """Forget the game."""
        self._game, self._over = None, True

    def _begin(self, seed: int) -> None:
        try:
            textarena = importlib.import_module("textarena")
        except ImportError as error:
            raise MissingDependency("textarena", _NAME, "textarena>=0.7.4") from error
        random.seed(seed)
        try:
            self._game = textarena.make(self._id, **self._arguments)
        except (ValueError, ImportError, TypeError, LookupError) as error:
            raise UsageError(f"{_NAME}: the game {self._id!r} cannot be made: {error}") from error
        self._bare = self._game
        while isinstance(self._bare, textarena.Wrapper):
            self._bare = self._bare.env
        self._seats = self._sit_down(seed)
        if self._seat >= self._seats:
            raise UsageError(f"{_NAME}: {self._id} has {self._seats} players, so there is no seat {self._seat}")
        self._others = {seat: self._player() for seat in range(self._seats) if seat != self._seat}

    def _sit_down(self, seed: int) -> int:
        """Reset the game; the number of players, the fewest that it takes where none is given."""
        refused = ""
        for players in [self._players] if self._players else range(1, _MOST_PLAYERS + 1):
            try:
                self._game.reset(num_players=players, seed=seed)
            except AssertionError as error:
                refused = str(error)
            else:
                return players
        raise UsageError(f"{_NAME}: {self._id} is not played by {self._players or 'so few'} players: {refused}")

    def _player(self) -> Callable[[], str]:
        """An opponent at the table: called when it is its turn."""
        if self._opponent == "random":
            return _RandomMover(self._bare, self._id)
        try:
            player = import_target(self._opponent)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"{_NAME}: opponent {self._opponent!r} cannot be imported: {error}") from error
        move: Any = player() if inspect.isclass(player) else player
        return lambda: str(move(_text(self._game.get_observation()[1], self._bare)))

    def _let_others_move(self, done: bool) -> bool:
        """Whether the game is over."""
        for _ in range(_MOST_MOVES):
            seat = self._bare.state.current_player_id
            if done or seat == self._seat:
                return done
            done, _ = self._game.step(self._others[seat]())
        raise RuntimeError(f"{self._id}: the opponents moved {_MOST_MOVES} times in a row")

    def _news(self) -> str:
        """What the agent has not been told yet."""
        told = self._bare.state.observations
        news, told[self._seat] = told[self._seat], []
        return _text([message for message in news if message[0] != self._seat], self._bare)

    def _result(self) -> StepResult:
        text = self._news()
        if not self._over:
            return StepResult(text)
        rewards, info = self._bare.close()
        if rewards is None or self._seat not in rewards:
            raise RuntimeError(f"{self._id} ended without a reward for player {self._seat}: {rewards!r:.80}")
        own = info.get(self._seat, {})
        reason = str(own.get("reason") or "The game is over.")
        told = {"reason": reason, "invalid_move": bool(own.get("invalid_move")), "rewards": dict(rewards)}
        return StepResult(f"{text}\n{reason}".strip(), float(rewards[self._seat]), terminated=True, info=told)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        with _randomness:
            outside = random.getstate()
            if self._random is not None:
                random.setstate(self._random)
            try:
                yield
            finally:
                self._random = random.getstate()
                random.setstate(outside)


class _RandomMover:
    """Makes any of the moves that the game offered last."""

    def __init__(self, game: Any, name: str) -> None:
        self._game, self._name = game, name
        self._offered: list[str] = []

    def __call__(self) -> str:
        for _, text, _ in self._game.get_observation()[1]:
            self._offered = _OFFERED.findall(text) or self._offered
        if not self._offered:
            raise UsageError(
                f"{_NAME}: {self._name} does not say which moves there are, so no random opponent can play it: "
                "give the option 'opponent' a module:function"
            )
        return random.choice(self._offered)


def _text(observation: Any, game: Any) -> str:
    """Messages as (sender, text, kind), or what a wrapper has made of them, as text."""
    if isinstance(observation, str):
        return observation.strip()
    messages: Sequence[tuple[int, str, Any]] = observation
    roles = game.state.role_mapping
    return "\n".join(f"[{roles.get(sender, f'Player {sender}')}] {text}" for sender, text, _ in messages).strip()
