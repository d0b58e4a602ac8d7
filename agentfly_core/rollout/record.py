"""What a chain has done so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentfly_core.rollout.segments import SegmentBuilder
from agentfly_core.rollout.setup import Job
from agentfly_core.types import (
    AssistantTurn,
    ChainStatus,
    Generation,
    Message,
    ToolOutcome,
    Trajectory,
    Turn,
)


@dataclass(slots=True)
class TurnRecord:
    """A turn in the making: sampled already, perhaps not yet acted upon."""

    index: int
    segment: int
    generation: Generation
    anchor: str | None
    generate_seconds: float
    assistant: AssistantTurn = field(default_factory=lambda: AssistantTurn(""))
    outcomes: tuple[ToolOutcome, ...] = ()
    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    act_seconds: float = 0.0

    def turn(self) -> Turn:
        """As it stands."""
        return Turn(
            index=self.index,
            segment=self.segment,
            token_ids=self.generation.token_ids,
            finish_reason=self.generation.finish_reason,
            assistant=self.assistant,
            outcomes=self.outcomes,
            observation=self.observation,
            reward=self.reward,
            anchor=self.anchor,
            weight_version=self.generation.weight_version,
            last_weight_version=self.generation.last_weight_version,
            generate_seconds=self.generate_seconds,
            act_seconds=self.act_seconds,
        )


@dataclass(slots=True)
class Record:
    """A chain's tokens, turns and messages, from which a trajectory can be made at any moment."""

    job: Job
    builder: SegmentBuilder = field(default_factory=SegmentBuilder)
    turns: list[TurnRecord] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    final_response: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    """Private to the chain's tools."""

    def trajectory(self, status: ChainStatus, error: str | None) -> Trajectory:
        """The chain as it ended, not scored yet."""
        return Trajectory(
            task=self.job.task,
            chain_index=self.job.chain_index,
            group=self.job.group,
            split=self.job.split,
            status=status,
            segments=self.builder.finish(),
            turns=tuple(record.turn() for record in self.turns),
            messages=tuple(self.messages),
            final_response=self.final_response,
            metrics=_means(outcome for record in self.turns for outcome in record.outcomes),
            error=error,
        )


def _means(outcomes: Iterable[ToolOutcome]) -> dict[str, float]:
    """Mean of each of the tools' numbers over the calls that gave it."""
    values: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.metrics.items():
            values.setdefault(name, []).append(float(value))
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}
