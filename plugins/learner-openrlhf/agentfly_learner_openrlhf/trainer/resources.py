"""Numbers of the resources that the rollout actors lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentfly_learner_openrlhf.records import ResourcesWanted


def resource_metrics(engines: Sequence[Any]) -> dict[str, float]:
    """Numbers ``resources/KIND/...`` of all rollout actors since the last call.

    Args:
        engines: handles of the actors.
    """
    import ray

    answers = [
        engine.generate_responses.remote(
            prompt="", label=ResourcesWanted(), sampling_params=None, max_length=0, hf_tokenizer=None
        )
        for engine in engines
    ]
    return merged([answer["label"] for [answer] in ray.get(answers)])


def merged(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Several engines' ``resource_metrics`` as one's.

    Seconds are the greatest, or averages weighted by leases; all else is added up. So ``allocated_max`` is what was in
    use at most if all engines were at their greatest at once.
    """
    names = sorted({name for report in reports for name in report})
    return {name: _merged(name, [report for report in reports if name in report]) for name in names}


def _merged(name: str, reports: Sequence[Mapping[str, float]]) -> float:
    values = [report[name] for report in reports]
    if name.endswith("_seconds_max"):
        return max(values)
    if name.endswith("_seconds_mean"):
        leases = f"{name.rpartition('/')[0]}/leases"
        weights = [max(report[leases], 1.0) for report in reports]
        return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    return sum(values)
