"""ScienceWorld as an ``Environment``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, get_args

from agentfly_core.environments import ActionTool
from agentfly_core.types import Observation, Split, StepResult, Task, UnknownName, UsageError
from agentfly_envs_scienceworld.actions import action_tools, tidy
from agentfly_envs_scienceworld.catalogue import SIMPLIFICATIONS, TASKS
from agentfly_envs_scienceworld.simulator import Simulator

Failure: TypeAlias = Literal["score", "zero", "keep"]

_NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action.")
_GRID = 2**20
"""Scores are rounded to multiples of its inverse, so that their differences add up exactly, in any order."""


class ScienceWorld:
    """A science experiment in text. Run it with ``isolation: worker``: each has a Java process of its own, which starts
    with it and is used for one task after another.

    The rewards of an episode add up to its final score: 1 where the task is solved, less where it is solved in part.
    A failure that cannot be mended (focusing on the wrong object, usually) ends the episode; the simulator scores it
    -1, whatever was earned before.

    Args:
        simplifications: of the world, see ``catalogue.SIMPLIFICATIONS``; ``[]`` for the world in full.
        max_steps: actions until the episode is cut off.
        failure: what an episode that failed adds up to. ``score``: to the simulator's -1. ``zero``: to 0. ``keep``: to
            what was earned before.
        invalid_penalty: taken off for every action that the simulator does not understand. A solved task then pays less
            than 1: lower the recipe's ``evaluation.success_threshold`` with it.
        show_commands: append the forms of commands to the first observation, for agents that act by text.
    """

    def __init__(
        self,
        *,
        simplifications: Sequence[str] = ("easy",),
        max_steps: int = 100,
        failure: Failure = "score",
        invalid_penalty: float = 0.0,
        show_commands: bool = False,
    ) -> None:
        for name in simplifications:
            if name not in SIMPLIFICATIONS:
                raise UnknownName("simplification of ScienceWorld", name, SIMPLIFICATIONS)
        if max_steps < 1:
            raise UsageError(f"environment 'scienceworld': max_steps must be at least 1, got {max_steps}")
        if failure not in get_args(Failure):
            raise UnknownName("option 'failure' of environment 'scienceworld':", str(failure), get_args(Failure))
        if not 0 <= invalid_penalty < math.inf:
            raise UsageError(f"environment 'scienceworld': invalid_penalty must be 0 or more, got {invalid_penalty}")
        self._simplifications, self._max_steps = tuple(simplifications), max_steps
        self._failure, self._penalty, self._show = failure, invalid_penalty, show_commands
        self._simulator: Simulator | None = Simulator()
        self._task: tuple[str, int] | None = None
        self._over = True

    @staticmethod
    def tasks(split: Split, seed: int = 0) -> Iterable[Task]:
        """The official training variations, or those of dev for evaluation.

        ``agentfly_envs_scienceworld.tasks:scienceworld_tasks`` gives a choice of tasks and subsets.
        """
        from agentfly_envs_scienceworld.tasks import scienceworld_tasks

        return scienceworld_tasks(split)

    @staticmethod
    def tools() -> Sequence[ActionTool]:
        """The commands as tools."""
        return action_tools()

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task's variation. The seed changes nothing: a variation always begins alike.

        Raises:
            UsageError: the task names no task or variation of ScienceWorld.
        """
        self._task, self._over = None, True  # until the episode has begun
        name, variation = _find(task)
        if self._simulator is None:
            self._simulator = Simulator()
        self._begin(name, variation, gold=False)
        text = f"{self._simulator.description()}\n\n{self._simulator.look()}".strip()
        if self._show:
            commands = [command for command in self._simulator.commands() if command != "reset task"]
            text += f"\n\nCommands, with names of objects for OBJ: {', '.join(commands)}"
        return Observation(text)

    async def step(self, action: str) -> StepResult:
        """Act. What the simulator does not understand changes nothing but the count of steps."""
        simulator = self._running()
        if self._over:
            return StepResult("The episode is over.", terminated=True)
        text = simulator.step(tidy(action))
        self._steps += 1
        score = self._score = simulator.score
        failed = score < 0
        done = failed or simulator.completed
        cut = not done and self._steps >= self._max_steps
        self._over = done or cut
        return StepResult(
            text,
            reward=self._earned(score, failed) - (self._penalty if text.startswith(_NOT_UNDERSTOOD) else 0.0),
            terminated=done,
            truncated=cut,
            info={"score": round(100 * score), "steps": self._steps, "failed": failed},
        )

    async def close(self) -> None:
        """End the simulator; the next reset starts another."""
        if self._simulator is not None:
            self._simulator.close()
        self._simulator, self._task, self._over = None, None, True

    def admissible_actions(self) -> list[str]:
        """Every command that would do something now, sorted: some thousand. Takes ten times as long as a step."""
        return sorted(set(self._running().valid_actions()))

    def anchor(self) -> str:
        """The state's key: what the room and the inventory look like, and the score."""
        simulator = self._running()
        state = repr((simulator.look(), simulator.inventory(), self._score))
        return hashlib.blake2b(state.encode(), digest_size=12).hexdigest()

    def gold_path(self) -> list[str]:
        """Commands that solve the task. The episode begins anew: they lead from its start.

        It differs from time to time, and for some tasks takes seconds to find.
        """
        simulator = self._running()
        assert self._task is not None
        self._begin(*self._task, gold=True)
        return simulator.gold_path()

    def _running(self) -> Simulator:
        if self._simulator is None or self._task is None:
            raise UsageError("environment 'scienceworld': no episode has begun; call reset first")
        return self._simulator

    def _begin(self, name: str, variation: int, *, gold: bool) -> None:
        assert self._simulator is not None
        if "noElectricalAction" in self._simplifications and ("power" in name or "conductivity" in name):
            raise UsageError(f"the task {name!r} cannot be done with the simplification 'noElectricalAction'")
        self._simulator.load(name, variation, self._simplifications, gold=gold)
        self._task, self._steps, self._over = (name, variation), 0, False
        self._score = self._paid = 0.0

    def _earned(self, score: float, failed: bool) -> float:
        """The step's reward: what is due by now, less what was paid before."""
        due = round(score * _GRID) / _GRID
        if failed and self._failure != "score":
            due = 0.0 if self._failure == "zero" else self._paid
        earned, self._paid = due - self._paid, due
        return earned


def _find(task: Task) -> tuple[str, int]:
    name, variation = task.fields.get("task"), task.fields.get("variation")
    if name not in TASKS:
        raise UsageError(
            f"task {task.id!r}: its field 'task' is no task of ScienceWorld but {name!r:.60} "
            "(agentfly scienceworld tasks lists them); the environment's own tasks have it"
        )
    count = TASKS[str(name)][1]
    if type(variation) is not int or not 0 <= variation < count:
        raise UsageError(
            f"task {task.id!r}: its field 'variation' must be a whole number from 0 to {count - 1} "
            f"for {name}, got {variation!r:.60}"
        )
    return str(name), variation
