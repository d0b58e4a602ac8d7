"""Several rewards as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentfly_core.types.errors import AgentFlyError, UsageError
from agentfly_core.types.protocols import Reward
from agentfly_core.types.tools import RewardResult, ToolContext
from agentfly_core.types.trajectories import Trajectory


class WeightedReward:
    """The weighted sum of rewards, scored concurrently.

    Components are each reward's own score under its name, unweighted, and its components as ``name/component``; a
    second reward of one name is called ``name#2``. If any reward has turn rewards, they are added up turn by turn,
    and the score of one without goes to the last turn.
    """

    def __init__(
        self, rewards: Sequence[Reward], weights: Sequence[float] | None = None, *, name: str = "weighted"
    ) -> None:
        weights = [1.0] * len(rewards) if weights is None else weights
        if not rewards or len(rewards) != len(weights):
            raise UsageError(f"a weighted reward needs rewards and as many weights: {len(rewards)} and {len(weights)}")
        self.name = name
        self._rewards: dict[str, tuple[Reward, float]] = {}
        for i, (reward, weight) in enumerate(zip(rewards, weights, strict=True)):
            same = sum(other.name == reward.name for other in rewards[:i])
            self._rewards[f"{reward.name}#{same + 1}" if same else reward.name] = (reward, weight)

    @property
    def fields(self) -> frozenset[str]:
        """What any of them needs."""
        return frozenset().union(*(reward.fields for reward, _ in self._rewards.values()))

    async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
        """The sum; one reward that fails fails the whole, by name, after all have ended."""
        calls = [reward.score(trajectory, context) for reward, _ in self._rewards.values()]
        results = await asyncio.gather(*calls, return_exceptions=True)
        scored: dict[str, tuple[RewardResult, float]] = {}
        for (name, (_, weight)), result in zip(self._rewards.items(), results, strict=True):
            if isinstance(result, Exception):
                raise AgentFlyError(f"reward {name!r}: {result or type(result).__name__}") from result
            if isinstance(result, BaseException):
                raise result
            scored[name] = (result, weight)
        return RewardResult(
            score=sum(weight * result.score for result, weight in scored.values()),
            components=_components(scored),
            turn_rewards=_turn_rewards(list(scored.values()), len(trajectory.turns)),
        )


def _components(scored: dict[str, tuple[RewardResult, float]]) -> dict[str, float]:
    components: dict[str, float] = {}
    for name, (result, _) in scored.items():
        components[name] = result.score
        components.update((f"{name}/{part}", number) for part, number in result.components.items())
    return components


def _turn_rewards(scored: list[tuple[RewardResult, float]], turns: int) -> tuple[float, ...] | None:
    if turns == 0 or all(result.turn_rewards is None for result, _ in scored):
        return None
    total = [0.0] * turns
    for result, weight in scored:
        for turn, number in enumerate(result.turn_rewards or (*[0.0] * (turns - 1), result.score)):
            total[turn] += weight * number
    return tuple(total)
