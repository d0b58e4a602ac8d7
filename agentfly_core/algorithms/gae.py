"""Returns and generalised advantage estimation over packed time steps.

Shapes: (N, S), N chains with at most S time steps (tokens or turns), left-aligned; ``mask`` says which exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentfly_core.algorithms.later import torch
from agentfly_core.algorithms.sampled import SampledTokens

if TYPE_CHECKING:
    from torch import Tensor


def returns_to_go(rewards: Tensor, gamma: float) -> Tensor:
    """G_t = r_t + gamma * G_{t+1}; (N, S) -> (N, S). Steps that do not exist must have reward 0."""
    result = torch.zeros_like(rewards)
    following = rewards.new_zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        following = rewards[:, t] + gamma * following
        result[:, t] = following
    return result


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor | float, lam: Tensor | float) -> Tensor:
    """Advantages (N, S) of 1506.02438, 0 off the mask.

    delta_t = r_t + gamma_t * V_{t+1} - V_t and A_t = delta_t + gamma_t * lam_t * A_{t+1}, where the value after the
    last step is 0. ``gamma`` and ``lam`` may differ from step to step, (N, S).
    """
    values = torch.where(mask, values, 0.0)
    gamma = torch.as_tensor(gamma, dtype=values.dtype, device=values.device).expand_as(values)
    decay = gamma * torch.as_tensor(lam, dtype=values.dtype, device=values.device)
    following = torch.cat([values[:, 1:], values.new_zeros(values.shape[0], 1)], dim=1)[:, : values.shape[1]]
    delta = torch.where(mask, rewards + gamma * following - values, 0.0)
    result = torch.zeros_like(delta)
    advantage = delta.new_zeros(delta.shape[0])
    for t in reversed(range(delta.shape[1])):
        advantage = delta[:, t] + decay[:, t] * advantage
        result[:, t] = advantage
    return result


def turn_gae(rewards: Tensor, values: Tensor, tokens: SampledTokens, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and value targets (N, L) with the turn as time step (2512.17008), the same on all tokens of a turn.

    V of a turn is the value at its first sampled token, its reward the sum of ``rewards`` (N, L) over its tokens.
    """
    turns = int(tokens.ordinal.max()) + 1 if tokens.ordinal.numel() else 0
    where = tokens.ordinal.clamp(min=0)

    def per_turn(x: Tensor, chosen: Tensor) -> Tensor:
        return x.new_zeros(x.shape[0], turns).scatter_add_(1, where, torch.where(chosen, x, 0.0))

    value = per_turn(values, tokens.turn_start)
    exists = per_turn(tokens.mask.to(values.dtype), tokens.turn_start) > 0
    advantage = gae(per_turn(rewards, tokens.mask), value, exists, gamma, lam)
    on_tokens = torch.where(tokens.mask, advantage.gather(1, where), 0.0)
    return on_tokens, torch.where(tokens.mask, (advantage + value).gather(1, where), 0.0)


def two_clock_gae(rewards: Tensor, values: Tensor, tokens: SampledTokens, gamma: float, lam: float) -> Tensor:
    """Advantages (N, L): gamma and lam on the step that leaves a turn, 1 inside a turn.

    At a turn's first token this is ``turn_gae``; elsewhere it is A_first + V_first - V_t.
    """
    one = torch.ones_like(values)
    gammas, lams = torch.where(tokens.turn_end, gamma * one, one), torch.where(tokens.turn_end, lam * one, one)
    return gae(rewards, values, tokens.mask, gammas, lams)
