"""Rewards: ``@reward`` on a function, weighted sums, and the built-in ones."""

from agentfly_core.rewards.function import FunctionReward, reward
from agentfly_core.rewards.numeric import numeric_match
from agentfly_core.rewards.process import environment_return, tool_use
from agentfly_core.rewards.text import exact_match, format_match
from agentfly_core.rewards.weighted import WeightedReward

__all__ = [
    "FunctionReward",
    "WeightedReward",
    "environment_return",
    "exact_match",
    "format_match",
    "numeric_match",
    "reward",
    "tool_use",
]
