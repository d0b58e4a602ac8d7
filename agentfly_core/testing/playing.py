"""One chain played from given turns: the quickest way to see a tool, an agent or an environment at work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentfly_core.backends.scripted import ScriptedBackend, ScriptedTurn
from agentfly_core.testing.characters import CharacterTemplate, CharacterTokenizer
from agentfly_core.testing.targets import import_path
from agentfly_core.types import (
    Agent,
    ChatTemplate,
    GenerationBackend,
    ResourceManager,
    ResourceSpec,
    Reward,
    Task,
    Tool,
    Trajectory,
    UsageError,
)

if TYPE_CHECKING:
    import tokenizers


def play(
    turns: Sequence[ScriptedTurn | str | Sequence[int]] | GenerationBackend,
    task: Task | str = "Go.",
    *,
    tools: Sequence[Tool] = (),
    reward: Reward | None = None,
    agent: Agent | None = None,
    environment: ResourceSpec | Callable[..., Any] | str | None = None,
    template: ChatTemplate | None = None,
    tokenizer: tokenizers.Tokenizer | None = None,
    resources: ResourceManager | None = None,
    timeout: float = 60.0,
    **options: Any,
) -> Trajectory:
    """Play one chain and return it. Needs no model, and without ``template`` no tokenizer.

    Args:
        turns: what the model says, turn by turn (``call`` writes a tool call); or a backend.
        task: or just its prompt.
        agent: a ``ToolCallingAgent`` if not given.
        environment: class or import path of an environment made without options, or a ``ResourceSpec``.
        template: ids are characters and calls are in hermes form (``CharacterTemplate``) if not given.
        tokenizer: of ``template``, for turns given as text.
        resources: where tools lease sandboxes from; the caller's to close. One with the installed providers if not
            given.
        timeout: seconds the chain may take.
        options: more of ``rollout.Engine``, such as ``max_turns``, ``sampling``, ``seed``.

    Raises:
        UsageError: the parts do not fit together.
    """
    from agentfly_core.agents.tool_calling import ToolCallingAgent
    from agentfly_core.plugins import Plugins
    from agentfly_core.recipes.resources import build_resources
    from agentfly_core.rollout import Engine

    encoder: Any = tokenizer if template is not None else CharacterTokenizer()
    backend: Any = turns if hasattr(turns, "generate") else ScriptedBackend(turns, encoder)
    if isinstance(task, str):
        task = Task("task", ({"role": "user", "content": task},))
    own = None if resources else build_resources(Plugins.load(warn=False))
    try:
        with Engine(
            agent=agent or ToolCallingAgent(),
            template=template or CharacterTemplate(),
            backend=backend,
            tools=tools,
            reward=reward,
            environment=_spec(environment),
            resources=resources or own,
            chain_timeout=timeout,
            **options,
        ) as engine:
            return engine.submit(task, 0, task.id).result(timeout + 60.0)
    finally:
        if own is not None:
            asyncio.run(own.close())


def call(name: str, /, **arguments: Any) -> str:
    """The text of a tool call as a model writes it in hermes form."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _spec(environment: ResourceSpec | Callable[..., Any] | str | None) -> ResourceSpec | None:
    if environment is None or isinstance(environment, ResourceSpec):
        return environment
    if isinstance(environment, str):
        return ResourceSpec.make("object", environment)
    target = import_path(environment)
    if target is None:
        raise UsageError("play: `environment` must be a class or function at the top of a module, or its import path")
    return ResourceSpec.make("object", target)
