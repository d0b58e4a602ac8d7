"""Evaluation on held-out tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from agentfly_core.learners.diagnostics import rollout_metrics
from agentfly_core.recipes.schema import Recipe
from agentfly_core.types import RolloutEngine, SamplingParams, Task, Trajectory

EvalMode: TypeAlias = Literal["sampled", "greedy"]

_NAMES = {
    "success": "success",
    "reward/mean": "reward",
    "tools/calls_per_chain": "tools_per_chain",
    "tools/failed_share": "tools_failed_share",
    "chains/unscored": "unscored",
    "rollout/seconds": "seconds",
}


def evaluate(
    engine: RolloutEngine,
    tasks: Sequence[Task],
    *,
    modes: Iterable[EvalMode],
    recipe: Recipe,
    on_trajectory: Callable[[Trajectory], None] | None = None,
    stop: threading.Event | None = None,
) -> dict[str, float]:
    """Numbers ``eval/MODE/success|reward|tools_per_chain|tools_failed_share|unscored|seconds`` for each mode.

    Success and reward are over scored chains. The same tasks are sampled with the same seeds at every evaluation, so
    that two of them differ by the weights alone. Greedy takes one chain a task.

    Args:
        engine: with the weights to evaluate; its own sampling parameters are not used.
        on_trajectory: called with every chain.
        stop: once it is set, chains that still run are given up, and their mode and those after it are left out.
    """
    metrics: dict[str, float] = {}
    for mode in modes:
        chains = recipe.evaluation.chains_per_task if mode == "sampled" else 1
        started = time.perf_counter()
        running = engine.run(
            tasks, chains=chains, sampling=eval_sampling(recipe, mode), split="eval", label=f"eval-{mode}"
        )
        done = list(_until(stop, running))
        if stop is not None and stop.is_set():
            break
        if on_trajectory is not None:
            for trajectory in done:
                on_trajectory(trajectory)
        seconds = time.perf_counter() - started
        found = rollout_metrics(done, seconds, threshold=recipe.evaluation.success_threshold)
        metrics |= {f"eval/{mode}/{short}": found[name] for name, short in _NAMES.items() if name in found}
    return metrics


def _until(stop: threading.Event | None, chains: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """The chains that end before ``stop`` is set; then the others are cancelled."""
    for chain in chains:
        if stop is not None and stop.is_set():
            return
        yield chain


def eval_sampling(recipe: Recipe, mode: EvalMode) -> SamplingParams:
    """How a mode samples a turn."""
    limit, stop = recipe.rollout.max_tokens_per_turn, tuple(recipe.rollout.stop)
    if mode == "greedy":
        return SamplingParams(temperature=0.0, max_tokens=limit, stop=stop)
    e = recipe.evaluation
    return SamplingParams(temperature=e.temperature, top_p=e.top_p, top_k=e.top_k, max_tokens=limit, stop=stop)
