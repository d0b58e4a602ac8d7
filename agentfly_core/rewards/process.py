"""Rewards for how a chain went rather than for what it answered."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.rewards.function import FunctionReward, reward
from agentfly_core.types.errors import UsageError
from agentfly_core.types.tools import RewardResult, ToolStatus
from agentfly_core.types.trajectories import Trajectory


def tool_use(*, cap: int | None = None, weight: float = 1.0, tools: Sequence[str] | None = None) -> FunctionReward:
    """A reward of ``weight`` for each tool call that worked.

    Args:
        cap: calls beyond this number count no more.
        weight: of one call.
        tools: names of the tools that count; all if None.
    """
    if cap is not None and cap < 0:
        raise UsageError(f"reward 'tool_use': cap must be 0 or more, got {cap}")

    def score(trajectory: Trajectory) -> RewardResult:
        left = float("inf") if cap is None else cap
        by_turn: list[float] = []
        for turn in trajectory.turns:
            good = [o for o in turn.outcomes if o.status is ToolStatus.OK and (tools is None or o.name in tools)]
            counted = min(len(good), left)
            left -= counted
            by_turn.append(weight * counted)
        return RewardResult(sum(by_turn), turn_rewards=tuple(by_turn))

    return FunctionReward(score, name="tool_use")


@reward
def environment_return(trajectory: Trajectory) -> RewardResult:
    """The sum of the environment's step rewards, each turn's own for turn-level credit."""
    by_turn = tuple(turn.reward for turn in trajectory.turns)
    return RewardResult(sum(by_turn), turn_rewards=by_turn)
