"""What all chains of an engine share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agentfly_core.rollout.clock import Clock
from agentfly_core.rollout.prompts import LastPrompt
from agentfly_core.rollout.waves import ChainOrder
from agentfly_core.types import (
    Agent,
    ChatTemplate,
    Environment,
    Generation,
    GenerationRequest,
    GroupId,
    ResourceManager,
    ResourceSpec,
    Reward,
    SamplingParams,
    Split,
    Task,
    Tool,
    ToolContext,
    ToolSchema,
    Trajectory,
    derive_seed,
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts and limits of an engine, as a chain needs them.

    Attributes:
        generate: samples a turn of the chain with this place and clock: directly, on the backend's loop, or in a wave.
        limit: longest segment in tokens, prompt included; None where there is no limit.
        chain_timeout, reward_timeout: unpaused seconds.
        tool_timeout: seconds of a call, for tools that set no limit of their own.
        max_observation_chars: longer observations of the environment lose their middle.
    """

    agent: Agent
    template: ChatTemplate
    generate: Callable[[GenerationRequest, ChainOrder, Clock], Awaitable[Generation]]
    tools: Mapping[str, Tool]
    schemas: Sequence[ToolSchema]
    reward: Reward | None
    max_turns: int
    limit: int | None
    environment: ResourceSpec | None
    resources: ResourceManager | None
    chain_timeout: float
    reward_timeout: float
    tool_timeout: float | None
    max_observation_chars: int
    seed: int
    clock: Clock
    notify: Callable[..., None]
    last_prompt: LastPrompt

    def context(
        self,
        job: Job,
        turn: int,
        state: MutableMapping[str, Any],
        scope: AsyncExitStack,
        environment: Environment | None,
    ) -> ToolContext:
        """What a tool or reward is told of the chain that calls it."""
        return ToolContext(
            task_id=job.task.id,
            chain_index=job.chain_index,
            turn=turn,
            fields=job.task.fields,
            environment=environment,
            resources=self.resources,
            state=state,
            seed=derive_seed(self.seed, job.group, job.task.id, job.chain_index, turn, "tools"),
            group=job.group,
            split=job.split,
            scope=scope,
            timeout=self.tool_timeout,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One submitted chain. ``number`` counts the submissions of the engine."""

    task: Task
    chain_index: int
    group: GroupId
    split: Split
    sampling: SamplingParams
    number: int
    future: Future[Trajectory]

    @property
    def name(self) -> str:
        """For leases and logs."""
        return f"{self.group}#{self.chain_index}"

    @property
    def order(self) -> ChainOrder:
        """Its place in a wave."""
        return (self.group, self.task.id, self.chain_index, self.number)


def list_schemas(agent: Agent, tools: Iterable[Tool]) -> list[ToolSchema]:
    """What the prompt says of these tools: nothing, if the agent has a notation of its own for them."""
    return [tool.schema() for tool in tools] if getattr(agent, "show_tools", True) else []
