"""ALFWorld as an ``Environment``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from agentfly_core.environments import ActionTool
from agentfly_core.types import Observation, Split, StepResult, Task, UnknownName, UsageError
from agentfly_envs_alfworld.actions import action_tools, in_the_games_words
from agentfly_envs_alfworld.games import Game, read_game
from agentfly_envs_alfworld.goals import Goal

if TYPE_CHECKING:
    from agentfly_envs_alfworld.engine import Engine

RewardKind: TypeAlias = Literal["won", "progress"]

_WITNESSED = frozenset({"checked", "examined", "wasinreceptacle"})
"""Facts about what was looked at before: they change nothing that can be done."""


class ALFWorld:
    """A household task in text. One game at a time; not for threads, so run it with ``isolation: worker``.

    Args:
        reward: ``won``: 1 when the task is done, which ends the episode. ``progress``: the same 1, paid out as the
            goal's conditions come true (and taken back when they cease to).
        invalid_penalty: taken off for every action that the game does not understand, in either kind of reward. A won
            game then pays less than 1: lower the recipe's ``evaluation.success_threshold`` with it.
        max_steps: actions until the episode is cut off.
        show_admissible: append the possible actions to every observation, as text agents are often given them.
    """

    def __init__(
        self,
        *,
        reward: RewardKind = "won",
        invalid_penalty: float = 0.0,
        max_steps: int = 50,
        show_admissible: bool = False,
    ) -> None:
        if reward not in get_args(RewardKind):
            raise UnknownName("reward of environment 'alfworld':", str(reward), get_args(RewardKind))
        if max_steps < 1:
            raise UsageError(f"environment 'alfworld': max_steps must be at least 1, got {max_steps}")
        if not 0 <= invalid_penalty < math.inf:
            raise UsageError(f"environment 'alfworld': invalid_penalty must be 0 or more, got {invalid_penalty}")
        self._reward, self._max_steps, self._show = reward, max_steps, show_admissible
        self._penalty = invalid_penalty
        self._engine: Engine | None = None
        self._game: Game | None = None
        self._over = False

    @staticmethod
    def tasks(split: Split, seed: int = 0) -> Iterable[Task]:
        """The official games (``train``, or ``valid_seen`` for evaluation) where installed, else generated ones.

        ``agentfly_envs_alfworld.tasks:alfworld_tasks`` gives a choice of splits and kinds.
        """
        from agentfly_envs_alfworld.tasks import alfworld_tasks

        return alfworld_tasks(split, seed)

    @staticmethod
    def tools() -> Sequence[ActionTool]:
        """The actions as tools."""
        return action_tools()

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task's game. The seed changes nothing: a game always begins alike.

        Raises:
            UsageError: the task names no game, or one that cannot be read.
            MissingDependency: TextWorld is not installed.
        """
        game = self._find(task)
        if self._engine is None:
            from agentfly_envs_alfworld.engine import Engine

            self._engine = Engine()
        self._over = True  # until the game has begun
        text = self._engine.start(game)
        self._game, self._steps, self._over = game, 0, False
        if self._reward == "progress":
            self._goal = Goal.read(game.problem)
            self._at_start, self._paid = self._conditions(), 0.0
        return Observation(self._with_actions(text.removeprefix("-= Welcome to TextWorld, ALFRED! =-").strip()))

    async def step(self, action: str) -> StepResult:
        """Act. What the game does not understand changes nothing but the count of steps."""
        engine = self._running()
        if self._over:
            return StepResult("The episode is over.", terminated=True)
        command = in_the_games_words(action, engine.commands)
        penalty = 0.0 if command in engine.commands else self._penalty
        text = engine.step(command)
        self._steps += 1
        won = engine.won
        cut = not won and self._steps >= self._max_steps
        self._over = won or cut
        return StepResult(
            text if won else self._with_actions(text),
            reward=self._earned(won) - penalty,
            terminated=won,
            truncated=cut,
            info={"won": won, "steps": self._steps},
        )

    async def close(self) -> None:
        """Free the planner's library."""
        if self._engine is not None:
            self._engine.close()
        self._engine = self._game = None

    def admissible_actions(self) -> list[str]:
        """Every command that the game would carry out now, sorted."""
        return sorted(self._running().commands)

    def anchor(self) -> str:
        """The state's key: equal for two chains of a task whose worlds are alike, whatever they looked at before."""
        facts = sorted(fact for fact in self._running().facts if fact[0] not in _WITNESSED)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()

    def walkthrough(self) -> list[str]:
        """Commands that win the game from its start, as its file gives them."""
        self._running()
        assert self._game is not None
        return list(self._game.walkthrough)

    def _running(self) -> Engine:
        if self._engine is None or self._game is None:
            raise UsageError("environment 'alfworld': no game has begun; call reset first")
        return self._engine

    def _find(self, task: Task) -> Game:
        name = task.fields.get("game")
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"task {task.id!r} has no field 'game' (a game.tw-pddl file, or 'generated:SUBSET:NUMBER:TYPE'); "
                "the environment's own tasks have it"
            )
        if self._game is not None and self._game.name == name:
            return self._game
        if name.startswith("generated:"):
            from agentfly_envs_alfworld.generation import generated_game

            return generated_game(name)
        return read_game(Path(name))

    def _with_actions(self, text: str) -> str:
        if not self._show:
            return text
        assert self._engine is not None
        return f"{text}\nPossible actions: {', '.join(sorted(self._engine.commands.keys() - {'help'}))}"

    def _conditions(self) -> int:
        assert self._engine is not None
        return self._goal.reached(self._engine.facts, self._engine.kinds)

    def _earned(self, won: bool) -> float:
        """The step's reward. Progress is the share of the conditions not yet true at the start; all true is 1."""
        if self._reward == "won":
            return float(won)
        missing = self._goal.conditions - self._at_start
        share = 1.0 if won else (self._conditions() - self._at_start) / missing if missing else 0.0
        earned, self._paid = share - self._paid, share
        return earned
