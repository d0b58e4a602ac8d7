"""What an environment returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfly_core.types.messages import Content


@dataclass(frozen=True, slots=True)
class Observation:
    """What the model is shown after ``reset``."""

    content: Content
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """One environment step, in Gymnasium's terms.

    Attributes:
        observation: what the model is shown.
        reward: of this step; added to the turn's reward.
        terminated: the task is over (won or lost).
        truncated: the environment cut the episode off.
        info: anything else; never shown to the model.
    """

    observation: Content
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether no further step is allowed."""
        return self.terminated or self.truncated
