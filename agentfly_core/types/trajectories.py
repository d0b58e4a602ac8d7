"""A finished chain: what the viewer shows, the re-scorer reads and the trainer trains on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from agentfly_core.types.messages import AssistantTurn, Message, text_of
from agentfly_core.types.tasks import Split, Task
from agentfly_core.types.tokens import FinishReason, Segment
from agentfly_core.types.tools import ToolOutcome

GroupId: TypeAlias = str
"""Chains of one group share a baseline: the same task, sampled in the same step."""


class ChainStatus(str, Enum):
    """How a chain ended."""

    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    TIMEOUT = "timeout"
    ENVIRONMENT_ERROR = "environment_error"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Turn:
    """One sampled turn and what followed from it.

    Attributes:
        index: 0 for the chain's first turn.
        segment: index of the segment its tokens lie in.
        token_ids: what was sampled, end token included if it was.
        finish_reason: ``length`` marks a turn that the token limit cut.
        assistant: the turn as parsed.
        outcomes: one per call, in order, errors included.
        observation: the messages handed back to the model; empty after the last turn.
        reward: sum of the environment's step rewards in this turn.
        anchor: the environment's state key before the turn, for step-level groups (GiGPO); None without one.
        weight_version, last_weight_version: weights that sampled its first and last token.
        generate_seconds, act_seconds: time spent sampling (queueing included) and acting.
    """

    index: int
    segment: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    assistant: AssistantTurn
    outcomes: tuple[ToolOutcome, ...] = ()
    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    anchor: str | None = None
    weight_version: int = 0
    last_weight_version: int = 0
    generate_seconds: float = 0.0
    act_seconds: float = 0.0

    @property
    def cut(self) -> bool:
        """Whether a limit ended the turn, and not an end token or a stop text."""
        return self.finish_reason != "stop"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A chain from its prompt to its score.

    Attributes:
        task, chain_index, group, split: which chain of which group this is.
        status: how it ended. An error's text is in ``error``.
        segments: the training sequences; one in append history, one or more in template history.
        turns: the sampled turns.
        messages: the whole conversation, assistant content as sampled.
        reward: the score; 0.0 where ``scored`` is False.
        scored: False leaves the chain out of its group's baseline and gives its tokens weight zero.
        unscored_reason: why it is not scored.
        components: the reward's named parts.
        turn_rewards: one number per turn, for turn-level credit.
        metrics: numbers of the chain's tools, averaged into the run's.
        seconds: wall time from start to score.
    """

    task: Task
    chain_index: int
    group: GroupId
    split: Split
    status: ChainStatus
    segments: tuple[Segment, ...] = ()
    turns: tuple[Turn, ...] = ()
    messages: tuple[Message, ...] = ()
    final_response: str | None = None
    reward: float = 0.0
    scored: bool = False
    unscored_reason: str | None = "no reward was computed"
    components: Mapping[str, float] = field(default_factory=dict)
    turn_rewards: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0

    @property
    def sampled_tokens(self) -> int:
        """Number of sampled tokens over all segments."""
        return sum(sum(s.action_mask) for s in self.segments)

    @property
    def response(self) -> str:
        """The final response, or else the text of the last assistant message, or the empty string."""
        if self.final_response is not None:
            return self.final_response
        last = next((m for m in reversed(self.messages) if m["role"] == "assistant"), None)
        return "" if last is None else text_of(last["content"])
