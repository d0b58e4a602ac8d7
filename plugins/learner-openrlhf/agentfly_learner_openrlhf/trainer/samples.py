"""Batches of chains: ordered, counted, always full."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from agentfly_learner_openrlhf.hub import Event, hub, tell
from agentfly_learner_openrlhf.job import current_job
from agentfly_learner_openrlhf.records import PADDING, Order

REAL = "agentfly_real"
"""Entry of a sample's ``info``: 1.0, or 0.0 where it only fills up a batch."""

Batch = tuple[list[Any], float | None, int, bool]
"""Samples, share of prompts that the filter kept, prompts consumed, whether the data is exhausted."""


def replace_in(module: ModuleType) -> None:
    """Put ours around the methods of OpenRLHF's generator of samples."""
    generator = module.SamplesGenerator
    generator.__init__ = _without_tokenizer(generator.__init__)
    generator._dispatch_prompts_to_vllm = _ordered(generator._dispatch_prompts_to_vllm)
    generator.generate_samples = _full(generator.generate_samples)


def _without_tokenizer(original: Callable[..., None]) -> Callable[..., None]:
    """Ray would pickle the tokenizer, megabytes, for every prompt; the executor has its own."""

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.tokenizer = None

    return init


def _ordered(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give each task a group of its own and the step that it is sampled for."""

    def dispatch(self: Any, prompts: list[str], labels: list[str], **options: Any) -> Any:
        chains = options.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt)
        step = steps_begun(self) + 1
        seen: Counter[tuple[int, str]] = self.__dict__.setdefault("agentfly_seen", Counter())
        orders = []
        for prompt, row in zip(prompts, labels, strict=True):
            number = seen[step, prompt]
            seen[step, prompt] += 1
            group = f"step-{step}.{number}/{prompt}" if number else f"step-{step}/{prompt}"
            orders.append(Order(row, group, step, chains))
        for old in [key for key in seen if key[0] < step]:
            del seen[old]
        return original(self, prompts, orders, **options)

    return dispatch


def _full(original: Callable[..., Batch]) -> Callable[..., Batch]:
    """Exactly as many batches as steps, each of full size, until the run is asked to stop."""

    def generate_samples(self: Any, **options: Any) -> Batch:
        import ray

        job, done = current_job(), steps_begun(self)
        if done >= job.steps or ray.get(hub().batches_ended.remote()):
            return [], None, 0, True
        samples, kept, consumed, exhausted = original(self, **options)
        if samples:
            self.agentfly_steps_begun = done + 1
            if exhausted:
                ray.get(hub().no_batch_after.remote(done + 1))
            tell(Event("batch", done + 1))
            fill_up(samples, self.args.rollout.batch_size * self.args.rollout.n_samples_per_prompt)
        return samples, kept, consumed, exhausted

    return generate_samples


def steps_begun(generator: Any) -> int:
    """Steps whose batch has been handed out, those of earlier launches included."""
    begun: int = generator.__dict__.setdefault("agentfly_steps_begun", current_job().start)
    return begun


def fill_up(samples: list[Any], size: int) -> None:
    """Append samples without a token to train on: a batch that is not full takes no optimizer step, or hangs."""
    for sample in samples:
        sample.info[REAL] = torch.ones(1)
    while len(samples) < size:
        padding = copy.deepcopy(samples[0])
        padding.labels = [PADDING]
        padding.action_mask = torch.zeros_like(padding.action_mask)
        padding.info[REAL] = torch.zeros(1)
        samples.append(padding)
