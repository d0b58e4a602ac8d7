"""Every extension point of AgentFly.

A plugin is a module or object with functions marked ``@hookimpl``, named by an entry point of the group
``agentfly``. It implements the hooks it needs and no others::

    from agentfly_core import hookimpl, tool

    @tool
    def roll(sides: int = 6) -> int:
        "Roll a die."
        ...

    @hookimpl
    def register_tools(register):
        register(roll)

Each ``register_*`` hook is called once per plugin. ``register`` takes the object itself, or its import path
``"module:attribute"``, which is imported on first use: that keeps heavy packages out of start-up. A hook must
import nothing heavier than pydantic and must not do any work. Its registrations count only if it returns.

The observer hooks at the end run on the rollout engine's loop or the learner's thread. They must not block and
cannot change anything; one that raises is disabled for the rest of the process and reported once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentfly_core.types import (
        Agent,
        Algorithm,
        Environment,
        GenerationBackend,
        GroupId,
        Learner,
        MetricSink,
        ResourceProvider,
        Reward,
        Split,
        Task,
        TemplateFamily,
        Tool,
        ToolOutcome,
        Trajectory,
        Turn,
    )

T_contra = TypeVar("T_contra", contravariant=True)

hookspec = pluggy.HookspecMarker("agentfly")
hookimpl = pluggy.HookimplMarker("agentfly")

PLUGIN_API_VERSION = 1
"""Raised when a hook changes in a way old plugins cannot follow. A plugin may declare the versions it works with as
``AGENTFLY_API = (lowest, highest)``."""


class Register(Protocol[T_contra]):
    """The callback of a ``register_*`` hook, bound to the plugin that is being asked."""

    def __call__(self, item: T_contra | str, *, name: str | None = None, summary: str = "") -> None:
        """Register ``item``, an object or its import path ``"module:attribute"``.

        Args:
            name: the short name; an object's own ``name`` if not given, required for an import path.
            summary: one line for listings; an object's own description or docstring if not given.

        Raises:
            UsageError: the item is not what this hook registers, or the plugin registered the name before.
        """
        ...


@hookspec
def register_tools(register: Register[Tool]) -> None:
    """Offer tools that models can call."""


@hookspec
def register_rewards(register: Register[Reward | Callable[..., Reward]]) -> None:
    """Offer rewards, or factories of rewards that take the recipe's options."""


@hookspec
def register_templates(register: Register[TemplateFamily]) -> None:
    """Offer chat templates."""


@hookspec
def register_agents(register: Register[type[Agent]]) -> None:
    """Offer agent types: classes built with the recipe's options."""


@hookspec
def register_environments(register: Register[Callable[..., Environment]]) -> None:
    """Offer environments: factories that take the recipe's options and return an unused instance."""


@hookspec
def register_algorithms(register: Register[Callable[..., Algorithm]]) -> None:
    """Offer RL algorithms: factories (dataclasses, usually) that take the recipe's options."""


@hookspec
def register_backends(register: Register[Callable[..., GenerationBackend]]) -> None:
    """Offer generation backends: factories called with a model path and the recipe's options."""


@hookspec
def register_learners(register: Register[Callable[..., Learner]]) -> None:
    """Offer learners: factories that take the recipe's ``learner.options``.

    A learner may have a method ``dry_run(recipe) -> Mapping[str, Any]``: what training would do, as plain data, which
    ``agentfly train --dry-run`` shows without starting anything.
    """


@hookspec
def register_resources(register: Register[Callable[..., ResourceProvider]]) -> None:
    """Offer resource providers; the name is the ``kind`` of the specs they serve."""


@hookspec
def register_trackers(register: Register[Callable[..., MetricSink]]) -> None:
    """Offer metric sinks: factories called with the run folder and the recipe's options."""


@hookspec
def rollout_started(task: Task, chain_index: int, group: GroupId, split: Split) -> None:
    """A chain begins. Called on the engine's loop."""


@hookspec
def tool_called(task: Task, chain_index: int, group: GroupId, turn: int, outcome: ToolOutcome) -> None:
    """A tool call ended, well or not. Called on the engine's loop."""


@hookspec
def turn_finished(task: Task, chain_index: int, group: GroupId, turn: Turn) -> None:
    """A turn was sampled and acted upon. Called on the engine's loop."""


@hookspec
def trajectory_finished(trajectory: Trajectory) -> None:
    """A chain ended and was scored. Called on the engine's loop."""


@hookspec
def update_finished(step: int, metrics: Mapping[str, float]) -> None:
    """Training step ``step`` (the first is 1) is done; step 0 brings the evaluation before it, where there is one.

    Called on the learner's thread.
    """


@hookspec
def run_finished(folder: Path, summary: Mapping[str, Any]) -> None:
    """A training or evaluation run ended normally. Called on the learner's thread."""
