"""Environments with Gymnasium's interface as text worlds.

The interface is ``reset(seed=...) -> (observation, info)`` and ``step(action) -> (observation, reward, terminated,
truncated, info)``. GEM and BALROG share it, and so may your own class, which needs no Gymnasium.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentfly_core.environments.seeded import episode_seed, seeded_tasks
from agentfly_core.registry import import_target
from agentfly_core.types import MissingDependency, Observation, Split, StepResult, Task, UsageError

_NAME = "environment 'gymnasium'"
_COLOURED = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class GymnasiumEnvironment:
    """One environment of Gymnasium's kind.

    Actions are text where the environment takes text. In a discrete space they are the names in ``actions``, or the
    numbers themselves; what is neither is answered with the possible actions, and the environment is not stepped.
    The environment runs in this process unless the recipe says ``isolation: worker``.

    Args:
        id: of an environment registered with Gymnasium: ``FrozenLake-v1``, or ``module:FrozenLake-v1``.
        factory: in place of ``id``, what makes the environment, as ``module:function`` (``gem:make``).
        arguments: of ``gymnasium.make`` or the factory.
        actions: names of the actions of a discrete space, in the order of their numbers.
        text: where in a mapping observation the text is: a key, or keys joined by dots.
        render: show ``render()`` in place of the observation, coloured text in [brackets]. With ``id`` it is made in
            the render mode ``ansi``.
        admissible: key under which ``info`` lists the possible actions, for environments that take text.
        instructions: shown before the first observation of an episode.
    """

    def __init__(
        self,
        *,
        id: str | None = None,
        factory: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        actions: Sequence[str] = (),
        text: str = "",
        render: bool = False,
        admissible: str = "",
        instructions: str = "",
    ) -> None:
        if (id is None) == (factory is None):
            raise UsageError(f"{_NAME} needs the option 'id' or the option 'factory', and not both")
        if len({name.lower() for name in actions}) < len(actions):
            raise UsageError(f"{_NAME}: two of the actions have one name: {', '.join(actions)}")
        self._id, self._factory, self._arguments = id, factory, dict(arguments or {})
        self._actions, self._path, self._render = tuple(actions), text.split(".") if text else [], render
        self._admissible, self._instructions = admissible, instructions
        self._world: Any = None
        self._info: Mapping[str, Any] = {}
        self._over = True

    @staticmethod
    def tasks(split: Split, seed: int = 0) -> Iterable[Task]:
        """Episodes without end, each with a seed of its own."""
        return seeded_tasks("gymnasium", split, seed)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the episode of the task's field ``seed``, or of ``seed``; its field ``options`` is handed on.

        Raises:
            UsageError: the environment cannot be made, or cannot be played in text.
            MissingDependency: Gymnasium is not installed.
        """
        self._over = True  # until the episode has begun
        if self._world is None:
            self._world = self._make()
            self._names = self._name_actions(getattr(self._world, "action_space", None))
        options = {"options": task.fields["options"]} if "options" in task.fields else {}
        observation, self._info = self._world.reset(seed=episode_seed(task, seed), **options)
        self._over = False
        text = self._shown(observation)
        return Observation(f"{self._instructions}\n\n{text}" if self._instructions else text)

    async def step(self, action: str) -> StepResult:
        """Act."""
        if self._over:
            return StepResult("The episode is over.", terminated=True)
        meant = self._meant(action.strip())
        if meant is None:
            possible = self.admissible_actions()
            return StepResult("This is no possible action." + (f" Say {' or '.join(possible)}." if possible else ""))
        observation, reward, terminated, truncated, self._info = self._world.step(meant)
        result = StepResult(self._shown(observation), float(reward), bool(terminated), bool(truncated))
        self._over = result.done
        return result

    def admissible_actions(self) -> list[str]:
        """Those that the environment names; none where it does not."""
        if self._world is None:
            return []
        if self._names is None:
            return list(map(str, self._info.get(self._admissible, ()))) if self._admissible else []
        mask = self._info.get("action_mask")
        return [name for number, name in enumerate(self._names) if mask is None or mask[number]]

    async def close(self) -> None:
        """Close the environment."""
        world, self._world, self._over = self._world, None, True
        if world is not None and hasattr(world, "close"):
            world.close()

    def _make(self) -> Any:
        if self._factory is not None:
            try:
                return import_target(self._factory)(**self._arguments)
            except (ImportError, AttributeError, TypeError, ValueError) as error:
                raise UsageError(f"{_NAME}: factory {self._factory!r}: {type(error).__name__}: {error}") from error
        try:
            gymnasium = importlib.import_module("gymnasium")
        except ImportError as error:
            raise MissingDependency("gymnasium", _NAME, "gymnasium>=1.0") from error
        mode = {"render_mode": "ansi"} if self._render else {}
        try:
            return gymnasium.make(self._id, **{**mode, **self._arguments})
        except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"{_NAME}: {self._id!r} cannot be made: {error}") from error

    def _name_actions(self, space: Any) -> tuple[str, ...] | None:
        """Of a discrete space; None where actions are text."""
        kind = type(space).__name__
        known = type(space).__module__.startswith("gymnasium.spaces")
        if known and kind not in ("Discrete", "Text"):
            raise UsageError(f"{_NAME}: actions of the space {kind} cannot be said in text: wrap the environment")
        self._start = int(getattr(space, "start", 0))
        count = getattr(space, "n", None)
        if count is None:
            return None
        if self._actions and len(self._actions) != int(count):
            raise UsageError(f"{_NAME}: option 'actions' has {len(self._actions)} names for {int(count)} actions")
        return self._actions or tuple(str(self._start + number) for number in range(int(count)))

    def _meant(self, action: str) -> Any:
        """What the environment takes for the action; None where it takes nothing of the kind."""
        if self._names is not None:
            lower = [name.lower() for name in self._names]
            return self._start + lower.index(action.lower()) if action.lower() in lower else None
        space: Any = getattr(self._world, "action_space", None)
        return action if not hasattr(space, "contains") or space.contains(action) else None

    def _shown(self, observation: Any) -> str:
        if self._render:
            frame = self._world.render()
            if not isinstance(frame, str):
                raise UsageError(
                    f"{_NAME}: render() gave {type(frame).__name__}, not text; leave out the option 'render'"
                )
            return _ESCAPE.sub("", _COLOURED.sub(r"[\1]", frame)).rstrip()
        for key in self._path:
            if not isinstance(observation, Mapping) or key not in observation:
                raise UsageError(f"{_NAME}: the observation has no {'.'.join(self._path)!r} (option 'text')")
            observation = observation[key]
        if isinstance(observation, Mapping):
            raise UsageError(
                f"{_NAME}: the observation is a mapping with {', '.join(map(str, observation))}: "
                "say with the option 'text' which of them is the text"
            )
        if len(getattr(observation, "shape", ())) > 1:
            raise UsageError(f"{_NAME}: the observation is an array of shape {observation.shape}, not text")
        return str(observation)
