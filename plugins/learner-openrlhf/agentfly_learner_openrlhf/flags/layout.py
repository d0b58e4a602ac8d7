"""How the GPUs of the cluster are divided between training and generating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentfly_learner_openrlhf.flags.options import LearnerOptions

Colocate: TypeAlias = Literal["all", "training", "none"]


@dataclass(frozen=True)
class Layout:
    """GPUs by what they do. Impossible wishes are in ``reasons``; the numbers are then those nearest to them.

    Attributes:
        total: GPUs of the cluster.
        engines: vLLM engines of ``tensor_parallel`` GPUs each.
        training: GPUs of the policy; the reference and the critic have as many, the same ones or others.
        data_parallel: copies of the policy, each trained on its share of a batch.
        reasons: each names an option and a way out.
    """

    colocate: Colocate
    total: int
    engines: int
    training: int
    data_parallel: int
    reasons: tuple[str, ...] = field(default=())


def divide(options: LearnerOptions, *, reference: bool, critic: bool) -> Layout:
    """The layout that the options ask for, given which models are trained and kept beside the policy."""
    total = options.nodes * options.gpus_per_node
    colocate: Colocate = options.colocate or ("training" if options.asynchronous else "all")
    reasons: list[str] = []
    width = options.tensor_parallel
    if options.gpus_per_node % width:
        reasons.append(
            f"learner.options.tensor_parallel: engines of {width} GPUs do not fill nodes of {options.gpus_per_node} "
            "(learner.options.gpus_per_node); use a divisor"
        )
    if colocate == "all":
        engines, training = max(1, total // width), total
        reasons += _together(options, engines)
    else:
        groups = _groups(colocate, options, reference=reference, critic=critic)
        engines = options.engines or max(1, total // 2 // width)
        training = max(1, (total - engines * width) // len(groups))
        reasons += _apart(total - engines * width, engines * width, groups, options)
    model = options.ring_attention * options.train_tensor_parallel
    if training % model:
        option = "ring_attention" if options.ring_attention > 1 else "train_tensor_parallel"
        reasons.append(
            f"learner.options.{option}: {options.ring_attention} GPUs a sequence times "
            f"{options.train_tensor_parallel} a matrix do not divide the {training} GPUs that train; use a divisor"
        )
    return Layout(colocate, total, engines, training, max(1, training // model), tuple(reasons))


def _groups(colocate: Colocate, options: LearnerOptions, *, reference: bool, critic: bool) -> list[str]:
    """The models that have GPUs of their own. Without ``async``, OpenRLHF cannot put a critic on the policy's alone."""
    alone = colocate == "none"
    names = ["policy"]
    if reference and alone:
        names.append("reference")
    if critic and (alone or not options.asynchronous):
        names.append("critic")
    return names


def _together(options: LearnerOptions, engines: int) -> list[str]:
    if options.asynchronous:
        return [
            "learner.options.colocate: with async, engines generate while the trainer trains, so they cannot share "
            "GPUs; use colocate: training"
        ]
    if options.engines not in (None, engines):
        return [
            f"learner.options.engines: with colocate: all every GPU holds a part of an engine, which makes {engines} "
            f"of {options.tensor_parallel}, not {options.engines}; leave engines out, or use colocate: training"
        ]
    return []


def _apart(left: int, taken: int, groups: list[str], options: LearnerOptions) -> list[str]:
    names = " and ".join(groups)
    if left < len(groups):
        return [
            f"learner.options.engines: engines on {taken} of {left + taken} GPUs leave {max(0, left)} for {names}; "
            "use fewer engines, raise nodes or gpus_per_node, or use colocate: all (without async)"
        ]
    if left % len(groups):
        return [
            f"learner.options.engines: the {left} GPUs beside the engines cannot be shared equally by {names}; "
            "use another number of engines"
        ]
    return []
