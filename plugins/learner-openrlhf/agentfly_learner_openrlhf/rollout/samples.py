"""A trajectory in the shape that OpenRLHF wants of an executor."""

from __future__ import annotations

from typing import Any

from agentfly_core.learners.collate import is_scored
from agentfly_core.types import Trajectory
from agentfly_learner_openrlhf.records import record

NOTHING = (0, 0)
"""Ids of a chain in which nothing was sampled: OpenRLHF's tensors need a column."""


def to_sample(trajectory: Trajectory, prompt: str, *, score: float) -> dict[str, Any]:
    """The dict that OpenRLHF makes a row of its batch from.

    An unscored chain has no action ranges, so that it leaves loss, gradient and denominators.

    Args:
        prompt: echoed.
        score: read by OpenRLHF's filter, where that is on.
    """
    segments = trajectory.segments
    if len(segments) > 1:
        raise ValueError(f"chain {trajectory.group}#{trajectory.chain_index} has {len(segments)} segments, not one")
    spans = segments[0].spans if segments and is_scored(trajectory) else ()
    return {
        "prompt": prompt,
        "label": record(trajectory),
        "images": None,
        "mm_train_inputs": None,
        "observation_tokens": list(segments[0].token_ids) if segments else list(NOTHING),
        "action_ranges": [(span.start, span.end) for span in spans],
        "rollout_log_probs": list(segments[0].logprobs) if segments else [0.0] * len(NOTHING),
        "reward": trajectory.reward if is_scored(trajectory) else 0.0,
        "scores": score,
        "truncated": bool(trajectory.turns) and trajectory.turns[-1].cut,
        "extra_logs": {},
    }
