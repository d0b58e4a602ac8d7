"""Evaluation between training steps, on the engines that the training's chains are sampled with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from agentfly_core.learners.evaluate import evaluate
from agentfly_core.types import SamplingParams, Split, Task
from agentfly_learner_openrlhf.hub import hub
from agentfly_learner_openrlhf.job import current_recipe
from agentfly_learner_openrlhf.records import ChainRecord, Order
from agentfly_learner_openrlhf.rows import to_row


def evaluate_now(trainer: Any, step: int) -> dict[str, float]:
    """Numbers ``eval/...`` of the current weights, as ``learners.evaluate`` defines them.

    Args:
        trainer: OpenRLHF's; its engines are awake in between only if they have memory of their own.
    """
    recipe = current_recipe()
    tasks = recipe.eval_tasks(recipe.recipe.evaluation.tasks)
    sleepy = trainer.args.vllm.enable_sleep
    if sleepy:
        _call(trainer, "wake_up")
    try:
        return evaluate(
            Engines(trainer.vllm_engines, step),  # type: ignore[arg-type]
            tasks,
            modes=recipe.recipe.evaluation.modes,
            recipe=recipe.recipe,
            stop=_StopRequested(),  # type: ignore[arg-type]
        )
    finally:
        if sleepy:
            _call(trainer, "sleep")


def _call(trainer: Any, method: str) -> None:
    from openrlhf.trainer.ray.vllm_engine import batch_vllm_engine_call

    batch_vllm_engine_call(trainer.vllm_engines, method)


class Engines:
    """All rollout actors as one engine, as far as an evaluation needs it.

    Args:
        engines: handles of the actors.
        step: training step that the chains are counted to.
    """

    def __init__(self, engines: list[Any], step: int) -> None:
        self._engines = engines
        self._step = step

    def run(
        self,
        tasks: Iterable[Task],
        *,
        chains: int = 1,
        sampling: SamplingParams | None = None,
        split: Split = "eval",
        label: str = "",
    ) -> Iterator[ChainRecord]:
        """``chains`` chains for each task, as they finish, a task's together."""
        import ray

        seen: Counter[str] = Counter()
        waiting = []
        for number, task in enumerate(tasks):
            again = f".{seen[task.id]}" if seen[task.id] else ""
            seen[task.id] += 1
            order = Order(to_row(task), f"{label}{again}/{task.id}", self._step, chains, split)
            waiting.append(
                self._engines[number % len(self._engines)].generate_responses.remote(
                    prompt=task.id,
                    label=order,
                    sampling_params=sampling,
                    max_length=0,
                    hf_tokenizer=None,
                    num_samples=chains,
                )
            )
        while waiting:
            [ready], waiting = ray.wait(waiting, num_returns=1)
            for sample in ray.get(ready):
                yield sample["label"]


class _StopRequested:
    """The run's wish to end early, asked for as the local learner asks its event."""

    def is_set(self) -> bool:
        """Whether the run was asked to end."""
        import ray

        stop: bool = ray.get(hub().stop_requested.remote())
        return stop
