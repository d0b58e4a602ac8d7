"""What passes between a chain, its tools and its rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from agentfly_core.types.messages import Content
from agentfly_core.types.tasks import Split

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from agentfly_core.types.protocols import Environment
    from agentfly_core.types.services import ResourceManager


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Injected into a tool parameter annotated ``ToolContext`` (and into a reward's ``context``).

    Attributes:
        task_id, chain_index, turn: who is calling. All 0 or empty outside a rollout.
        fields: the task's data-set fields.
        environment: the chain's environment, or None.
        resources: where to lease sandboxes and containers from, or None.
        state: a dict private to the chain, alive from its first to its last turn.
        seed: for randomness inside the tool; differs for every (task, chain, turn).
        group, split: the chain's group, and whether it trains or evaluates.
        scope: what an async tool enters here lives until the chain has been scored, and is left in every case: a
            sandbox leased for the whole chain, say. None outside a rollout.
        timeout: seconds a call may take where the tool sets no limit of its own; None sets none.
    """

    task_id: str = ""
    chain_index: int = 0
    turn: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment | None = None
    resources: ResourceManager | None = None
    state: MutableMapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    group: str = ""
    split: Split = "train"
    scope: AsyncExitStack | None = None
    timeout: float | None = None

    @property
    def chain(self) -> str:
        """The chain's name, for leases and logs."""
        return f"{self.group or self.task_id}#{self.chain_index}"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return where text is not enough.

    Attributes:
        content: what the model sees.
        final: True ends the chain with ``content`` as its final response.
        error: True marks a failure that the tool reports itself.
        metrics: numbers averaged into the run's metrics.
    """

    content: Content
    final: bool = False
    error: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


class ToolStatus(str, Enum):
    """How a call ended."""

    OK = "ok"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    MALFORMED = "malformed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A finished call. ``content`` is what the model sees, whatever the status."""

    name: str
    status: ToolStatus
    content: Content
    seconds: float = 0.0
    final: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class RewardResult:
    """A trajectory's score.

    Attributes:
        score: the number group baselines and success metrics use.
        components: named parts, for metrics and for algorithms over several rewards.
        turn_rewards: one number per turn for turn-level credit; None puts ``score`` on the last turn.
    """

    score: float
    components: Mapping[str, float] = field(default_factory=dict)
    turn_rewards: tuple[float, ...] | None = None

    def is_finite(self) -> bool:
        """Whether every number in it is finite; a reward that is not leaves its trajectory unscored."""
        return all(map(math.isfinite, (self.score, *self.components.values(), *(self.turn_rewards or ()))))
