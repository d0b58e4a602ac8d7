"""From a finished chain to its score, or to the reason why it has none."""

from __future__ import annotations

import math
from dataclasses import replace

from agentfly_core.rollout.scope import contained
from agentfly_core.types import ChainStatus, Reward, RewardResult, ToolContext, Trajectory

UNSCORED = {
    ChainStatus.TIMEOUT: "the chain ran out of time",
    ChainStatus.ENVIRONMENT_ERROR: "the environment failed",
    ChainStatus.ABORTED: "the chain was aborted",
}
"""Endings that say nothing about the policy: how long a chain takes depends on the load of the machine, so that a
penalty for a timeout would train on noise."""


async def score(
    trajectory: Trajectory, reward: Reward | None, context: ToolContext, *, in_environment: bool, timeout: float
) -> Trajectory:
    """The trajectory with its score. Without a reward, an environment's step rewards are summed.

    Never raises but for cancellation.
    """
    if reason := UNSCORED.get(trajectory.status) or ("" if trajectory.turns else "nothing was sampled"):
        return unscored(trajectory, reason)
    if reward is None:
        return _with_step_rewards(trajectory) if in_environment else unscored(trajectory, "no reward")
    what = f"reward {reward.name!r}"
    try:
        result = await contained(reward.score(trajectory, context), what=what, timeout=timeout)
        if problem := _problem(result, len(trajectory.turns)):
            return unscored(trajectory, f"{what} {problem}")
    except Exception as error:
        return unscored(trajectory, f"{what} failed: {type(error).__name__}: {error}")
    turn_rewards = result.turn_rewards
    if turn_rewards is None:
        turn_rewards = (*(0.0 for _ in trajectory.turns[1:]), float(result.score))
    return replace(
        trajectory,
        reward=float(result.score),
        scored=True,
        unscored_reason=None,
        components=dict(result.components),
        turn_rewards=tuple(map(float, turn_rewards)),
    )


def unscored(trajectory: Trajectory, reason: str) -> Trajectory:
    """The trajectory without a score: out of its group's baseline, of weight zero."""
    return replace(
        trajectory, reward=0.0, scored=False, unscored_reason=reason, turn_rewards=(0.0,) * len(trajectory.turns)
    )


def _problem(result: object, turns: int) -> str:
    """What is wrong with a reward's result, or the empty string."""
    if not isinstance(result, RewardResult):
        return f"returned {type(result).__name__}, not a RewardResult"
    if not result.is_finite():
        return f"gave a number that is not finite: {result}"
    if result.turn_rewards is not None and len(result.turn_rewards) != turns:
        return f"gave {len(result.turn_rewards)} turn rewards for {turns} turns"
    return ""


def _with_step_rewards(trajectory: Trajectory) -> Trajectory:
    rewards = tuple(turn.reward for turn in trajectory.turns)
    if not all(map(math.isfinite, rewards)):
        return unscored(trajectory, f"the environment gave a reward that is not finite: {rewards}")
    return replace(trajectory, reward=sum(rewards), scored=True, unscored_reason=None, turn_rewards=rewards)
