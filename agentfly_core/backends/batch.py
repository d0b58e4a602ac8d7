"""Continuous batching: rows join at a step boundary, are sampled together, and leave when they are done."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agentfly_core.backends.outbox import Outbox
from agentfly_core.backends.runner import ModelRunner
from agentfly_core.backends.sampling import SamplingPlan, sample
from agentfly_core.backends.slots import Row, Slots
from agentfly_core.types import AgentFlyError, FinishReason, Generation

PREFILL_TOKENS = 8192
"""Tokens of one prefill pass, padding included; a longer prompt is fed in pieces."""
MASK_ELEMENTS = 2**26
"""Bound of tokens times visible slots of one prefill pass."""
SLACK = 0.15
"""Part of a decode step that may be spent on rows that are not live."""


class Batch:
    """The rows being sampled. Used by one thread."""

    def __init__(self, runner: ModelRunner, slots: Slots) -> None:
        self._runner = runner
        self._slots = slots
        self._cache = slots.cache
        self._plan: SamplingPlan | None = None
        self.outbox = Outbox()
        self.version = 0

    def live(self) -> list[Row]:
        """Rows being sampled."""
        return self._slots.live()

    def admit(self, rows: list[Row]) -> None:
        """Run the prompts and sample the first token of each row."""
        self._plan = None
        self._slots.place(rows)
        logits = torch.empty((len(rows), self._runner.vocabulary), device=self._runner.device)
        for members in self._prefill_groups(rows):
            self._prefill(rows, members, logits)
        self._sample(rows, logits, self._plan_of(rows))

    def _plan_of(self, rows: Sequence[Row]) -> SamplingPlan:
        params = [row.request.sampling for row in rows]
        return SamplingPlan.of(params, self._runner.vocabulary, self._runner.device)

    def _prefill_groups(self, rows: Sequence[Row]) -> list[list[list[int]]]:
        """Batches of the prefill: each a list of lists of row numbers with identical prompts, which are run once.

        Rows of similar length go together, so that little is padding; fresh ones and resumed ones apart.
        """
        same: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(rows):
            key = tuple(row.ids) if row.cached == 0 else (-1, number)
            same.setdefault(key, []).append(number)
        batches: list[list[list[int]]] = []
        for resumed in (False, True):
            groups = [g for g in same.values() if (rows[g[0]].cached > 0) == resumed]
            groups.sort(key=lambda g: len(rows[g[0]].ids) - rows[g[0]].cached)
            batch: list[list[int]] = []
            for group in groups:
                row = rows[group[0]]
                if batch and (len(batch) + 1) * (len(row.ids) - row.cached) > _most_tokens(len(row.ids)):
                    batches.append(batch)
                    batch = []
                batch.append(group)
            if batch:
                batches.append(batch)
        return batches

    def _prefill(self, rows: Sequence[Row], groups: list[list[int]], logits: Tensor) -> None:
        firsts = [rows[group[0]] for group in groups]
        if len(firsts) == 1:
            self._feed_head(firsts[0])
        news = [row.ids[row.cached :] for row in firsts]
        bases = [row.cached for row in firsts]
        self._slots.reserve(max(bases) + max(map(len, news)))
        slots = [row.slot for row in firsts]
        got = self._runner.feed(self._cache, slots, news, bases).float()
        source = [rows[group[0]].slot for group in groups for _ in group[1:]]
        target = [rows[other].slot for group in groups for other in group[1:]]
        if target:
            self._cache.copy(source, target, max(len(row.ids) for row in firsts))
        for group in groups:
            for number in group:
                rows[number].cached = len(rows[number].ids)
        members = torch.tensor([number for group in groups for number in group], device=logits.device)
        origin = torch.tensor([i for i, group in enumerate(groups) for _ in group], device=logits.device)
        logits.index_copy_(0, members, got.index_select(0, origin))

    def _feed_head(self, row: Row) -> None:
        """Feed a long prompt piece by piece until what is left fits one pass."""
        piece = _most_tokens(len(row.ids))
        while len(row.ids) - row.cached > piece:
            self._runner.feed(self._cache, [row.slot], [row.ids[row.cached : row.cached + piece]], [row.cached])
            row.cached += piece

    def step(self) -> None:
        """Sample one more token of every live row."""
        self._slots.reserve(max(row.cached for row in self.live()) + 1)
        self._slots.compact(SLACK)
        window = self._slots.window()
        live = [row for row in window if row is not None and row.live]
        tokens = np.zeros((len(window), 1), np.int64)
        slots = np.zeros((len(window), 1), np.int64)
        for slot, row in enumerate(window):
            if row is not None:
                slots[slot, 0] = row.cached  # of a kept row: the slot behind its tokens, overwritten at its next turn
                tokens[slot, 0] = row.ids[-1] if row.live else 0
        visible = 1 + max(row.cached for row in live)
        logits = self._runner.forward(self._cache, range(len(window)), tokens, slots, visible=visible)
        for row in live:
            row.cached += 1
        if len(live) < len(window):
            logits = logits.index_select(0, torch.tensor([row.slot for row in live], device=logits.device))
        if self._plan is None:
            self._plan = self._plan_of(live)
        self._sample(live, logits, self._plan)

    def _sample(self, rows: list[Row], logits: Tensor, plan: SamplingPlan) -> None:
        uniforms = torch.tensor([row.uniforms.draw() for row in rows], device=logits.device)
        with torch.inference_mode():
            ids, logprobs = sample(logits, plan, uniforms)
        for row, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            if math.isnan(logprob):
                self._fail_not_finite(row)
            elif row.ended:
                self._finish(row, "stop")
            elif len(row.logprobs) == row.request.sampling.max_tokens:
                self._finish(row, "length")

    def _finish(self, row: Row, reason: FinishReason) -> None:
        self._plan = None
        self._slots.finish(row)
        sampled = tuple(row.ids[len(row.request.prompt_ids) :])
        generation = Generation(sampled, tuple(row.logprobs), reason, self.version, self.version)
        self.outbox.put(row.future, generation)

    def _fail_not_finite(self, row: Row) -> None:
        self._cache.erase(row.slot)
        self.fail(
            row,
            AgentFlyError(
                f"the model's logits are not finite (weight version {self.version}): the weights have diverged, or "
                "the dtype is too narrow for the model"
            ),
        )

    def fail(self, row: Row, error: Exception) -> None:
        """Give the row up with this error."""
        self._plan = None
        self._slots.free(row)
        self.outbox.put(row.future, error)

    def drop_abandoned(self) -> None:
        """Free the rows whose callers have gone."""
        for row in self.live():
            if row.abandoned:
                self._plan = None
                self._slots.free(row)


def _most_tokens(visible: int) -> int:
    """Tokens of one prefill pass that sees this many slots."""
    return max(1, min(PREFILL_TOKENS, MASK_ELEMENTS // visible))
