"""From what a reward returned to a ``RewardResult``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly_core.types.tools import RewardResult


def to_reward_result(value: Any, *, turns: int) -> RewardResult:
    """A number is the score. A mapping's ``score`` is, beside its other entries; without one their sum is.

    Numbers that are not finite pass: whoever asked for the score leaves such a trajectory unscored.

    Raises:
        TypeError: it is nothing of the kind. ValueError: an empty mapping, one whose sum cannot be meant, or other than
            one number a turn.
    """
    if isinstance(value, RewardResult):
        return _checked(value, turns)
    if not isinstance(value, Mapping):
        return RewardResult(_number(value, "it"))
    if not value:
        raise ValueError("the reward returned an empty mapping, which has no score")
    parts = {str(name): _number(number, repr(name)) for name, number in value.items()}
    if "score" not in parts and (totals := parts.keys() & {"reward", "total"}):
        raise ValueError(f"of a mapping the entry 'score' counts, or else the sum of all: call {min(totals)!r} 'score'")
    score = parts.pop("score") if "score" in parts else sum(parts.values())
    return RewardResult(score, parts)


def _checked(result: RewardResult, turns: int) -> RewardResult:
    components = {str(name): _number(number, repr(name)) for name, number in result.components.items()}
    by_turn = result.turn_rewards
    if by_turn is not None:
        by_turn = tuple(_number(number, f"turn_rewards[{i}]") for i, number in enumerate(by_turn))
        if len(by_turn) != turns:
            raise ValueError(f"the reward returned {len(by_turn)} turn rewards for {turns} turns")
    return RewardResult(_number(result.score, "score"), components, by_turn)


def _number(value: Any, what: str) -> float:
    """Ints, bools, fractions and array scalars are numbers; text that looks like one is not."""
    if value is None or isinstance(value, str | bytes) or not hasattr(type(value), "__float__"):
        raise TypeError(f"a reward returns a number, a mapping of numbers or a RewardResult; {what} is {value!r:.100}")
    return float(value)
