"""The learner ``openrlhf``: the same recipe on a cluster, through Ray, vLLM and DeepSpeed."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_learners(register: Register[Any]) -> None:
    register(
        "agentfly_learner_openrlhf.learner:OpenRLHFLearner",
        name="openrlhf",
        summary="A cluster: Ray, vLLM and DeepSpeed, through OpenRLHF.",
    )
