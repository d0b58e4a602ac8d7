"""Numbers about a step's chains and about how well sampler and learner agree.

Names under ``chains/`` are shares of all chains, ``group/`` of all groups but for counts, which say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from agentfly_core.algorithms.statistics import group_statistics
from agentfly_core.learners.collate import Collated, is_scored
from agentfly_core.types import ChainStatus, ToolStatus, Trajectory


def rollout_metrics(trajectories: Sequence[Trajectory], seconds: float, *, threshold: float) -> dict[str, float]:
    """Rewards, tool calls, endings and speed of the chains of one step or evaluation.

    Rewards and ``success`` (the share with at least ``threshold``) are over scored chains; without one they are
    left out, never 0.
    """
    n = max(1, len(trajectories))
    scored = [t for t in trajectories if is_scored(t)]
    outcomes = [outcome for t in trajectories for turn in t.turns for outcome in turn.outcomes]
    tokens = sum(t.sampled_tokens for t in trajectories)
    metrics: dict[str, float] = {}
    if scored:
        rewards = [t.reward for t in scored]
        mean = sum(rewards) / len(rewards)
        metrics["reward/mean"] = mean
        metrics["reward/std"] = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
        metrics["success"] = sum(r >= threshold for r in rewards) / len(rewards)
        metrics |= {f"reward/{k}": v for k, v in _means([t.components for t in scored]).items()}
    metrics |= {f"tools/{k}": v for k, v in _means([t.metrics for t in trajectories]).items()}
    endings = Counter(t.status for t in trajectories)
    metrics |= {f"chains/{status.value}": endings[status] / n for status in ChainStatus}
    failed = sum(outcome.status is not ToolStatus.OK for outcome in outcomes)
    return metrics | {
        "chains/unscored": (len(trajectories) - len(scored)) / n,
        "chains/turns": sum(len(t.turns) for t in trajectories) / n,
        "chains/segments": sum(len(t.segments) for t in trajectories) / n,
        "tools/calls_per_chain": len(outcomes) / n,
        "tools/failed_share": failed / max(1, len(outcomes)),
        "rollout/sampled_tokens": float(tokens),
        "rollout/tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
        "rollout/seconds": seconds,
    }


def group_metrics(data: Collated, *, expected: int) -> dict[str, float]:
    """What the baselines have to work with.

    ``group/zero_variance`` is the share of groups that teach nothing: fewer than two scored chains, or all rewards
    equal. ``group/incomplete`` counts groups with fewer than ``expected`` scored chains.
    """
    batch = data.batch
    s = group_statistics(batch.rewards, batch.group, batch.scored)
    first = {group: chain for chain, group in reversed(list(enumerate(batch.group.tolist())))}
    chains = list(first.values())
    return {
        "group/zero_variance": float(s.flat[chains].double().mean()) if chains else 0.0,
        "group/incomplete": float((s.size[chains] < expected).sum()),
    }


def sampler_gap(logp: Tensor, rollout_logp: Tensor, mask: Tensor) -> dict[str, float]:
    """How far the learner's logprobs are from the engine's for the same weights, over sampled tokens.

    ``logp/max_abs_diff`` and ``logp/mean_abs_diff`` are of log w = log pi_old - log pi_rollout; ``logp/ess`` is the
    effective sample size (sum w)^2 / (n sum w^2), 1 where they agree; ``logp/nonfinite`` counts tokens whose logprob
    is NaN or infinite on either side, which are left out of the others.
    """
    usable = mask & torch.isfinite(rollout_logp) & torch.isfinite(logp)
    metrics = {"logp/nonfinite": float((mask & ~usable).sum())}
    log_w = (logp.double() - rollout_logp.double())[usable]
    if log_w.numel() == 0:
        return metrics
    w = log_w.exp()
    return metrics | {
        "logp/max_abs_diff": float(log_w.abs().max()),
        "logp/mean_abs_diff": float(log_w.abs().mean()),
        "logp/ess": float(w.sum() ** 2 / (w.numel() * (w**2).sum())),
    }


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each number over the rows that have it."""
    names = sorted({name for row in rows for name in row})
    values = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(v) / len(v) for name, v in values.items()}
