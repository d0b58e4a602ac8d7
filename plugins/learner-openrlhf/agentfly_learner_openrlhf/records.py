"""What travels with a chain's tokens from the rollout actor to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfly_core.types import (
    AssistantTurn,
    ChainStatus,
    GroupId,
    Split,
    Task,
    ToolOutcome,
    Trajectory,
    Turn,
    TurnSpan,
)


@dataclass(frozen=True, slots=True)
class Order:
    """A task on its way to a rollout actor; stands where OpenRLHF has a label.

    Attributes:
        row: the task as JSON text (see ``rows``).
        group: of its chains.
        step: training step that they are sampled for.
        chains: how many of them.
        split: evaluation counts as its own.
    """

    row: str
    group: GroupId
    step: int
    chains: int
    split: Split = "train"


@dataclass(frozen=True, slots=True)
class ResourcesWanted:
    """Stands where an order does, and asks a rollout actor for its engine's ``resource_metrics``."""


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """A trajectory without its texts and ids; takes the label's place in OpenRLHF's samples.

    Fields of the names of a ``Trajectory``'s mean the same; ``turns`` are without texts.
    """

    task: Task
    chain_index: int
    group: GroupId
    split: Split
    status: ChainStatus
    reward: float
    scored: bool
    unscored_reason: str | None
    components: Mapping[str, float]
    turn_rewards: tuple[float, ...]
    metrics: Mapping[str, float]
    error: str | None
    seconds: float
    turns: tuple[Turn, ...]
    segments: tuple[tuple[TurnSpan, ...], ...] = field(default=())
    sampled_tokens: int = 0


PADDING = "padding"
"""Label of a sample that only fills up a batch."""


def record(trajectory: Trajectory) -> ChainRecord:
    """What of a trajectory the trainer needs besides its tokens."""
    t = trajectory
    return ChainRecord(
        task=Task(t.task.id),
        chain_index=t.chain_index,
        group=t.group,
        split=t.split,
        status=t.status,
        reward=t.reward,
        scored=t.scored,
        unscored_reason=t.unscored_reason,
        components=dict(t.components),
        turn_rewards=t.turn_rewards,
        metrics=dict(t.metrics),
        error=t.error,
        seconds=t.seconds,
        turns=tuple(map(_without_texts, t.turns)),
        segments=tuple(segment.spans for segment in t.segments),
        sampled_tokens=t.sampled_tokens,
    )


def _without_texts(turn: Turn) -> Turn:
    outcomes = tuple(ToolOutcome(o.name, o.status, "") for o in turn.outcomes)
    return replace(turn, token_ids=(), assistant=AssistantTurn(""), outcomes=outcomes, observation=())
