"""Drawing one token a row from logits, each row with its own parameters and its own random stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentfly_core.types import SamplingParams

BLOCK = 256


class UniformStream:
    """Uniform numbers in [0, 1) of one turn, from the counter-based Philox generator keyed by the turn's seed.

    The n-th number depends on the seed and n alone, so what else is in a batch cannot change what a row draws.
    """

    def __init__(self, seed: int | None) -> None:
        key = secrets.randbits(63) if seed is None else seed
        self._generator = np.random.Generator(np.random.Philox(key=key % 2**128))
        self._block: list[float] = []
        self._next = 0

    def draw(self) -> float:
        """The next number; a multiple of 2^-24, so exact in float32."""
        if self._next == len(self._block):
            self._block = self._generator.random(BLOCK, dtype=np.float32).tolist()
            self._next = 0
        self._next += 1
        return self._block[self._next - 1]


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """The parameters of a batch of B rows as tensors, built once for as long as the rows stay the same.

    Attributes:
        greedy: (B,) bool, or None if no row is greedy.
        temperature: (B, 1), 1 for greedy rows, or None if all are 1.
        filtered: (F,) indices of the rows with top-p or top-k, or None.
        top_k: (F, 1), the vocabulary size for "all".
        top_p: (F, 1).
        forbidden: rows (N,) and ids (N,) of what must not be sampled, or None.
    """

    greedy: Tensor | None
    temperature: Tensor | None
    filtered: Tensor | None
    top_k: Tensor
    top_p: Tensor
    forbidden: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, params: Sequence[SamplingParams], vocabulary: int, device: torch.device) -> SamplingPlan:
        """The plan of rows in this order."""
        greedy = [p.temperature == 0 for p in params]
        temperature = [p.temperature or 1.0 for p in params]
        filtered = [i for i, p in enumerate(params) if (p.top_p < 1 or p.top_k > 0) and not greedy[i]]
        top_k = [[min(params[i].top_k or vocabulary, vocabulary)] for i in filtered]
        top_p = [[params[i].top_p] for i in filtered]
        forbidden = [(row, token) for row, p in enumerate(params) for token in p.forbidden_token_ids]
        return cls(
            greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
            temperature=torch.tensor(temperature, device=device)[:, None] if set(temperature) != {1.0} else None,
            filtered=torch.tensor(filtered, device=device) if filtered else None,
            top_k=torch.tensor(top_k, device=device),
            top_p=torch.tensor(top_p, device=device),
            forbidden=torch.tensor(forbidden, device=device).unbind(1) if forbidden else None,  # type: ignore[arg-type]
        )


def sample(logits: Tensor, plan: SamplingPlan, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row.

    Args:
        logits: (B, V), any float type; computed with in float32.
        plan: of the same B rows.
        uniforms: (B,) float32 in [0, 1).

    Returns:
        ids (B,) int64, and their logprobs (B,) float32 after temperature and before top-k, top-p and forbidden ids.
        NaN logits give a NaN logprob.
    """
    scores = logits.float()
    if plan.temperature is not None:
        scores = scores / plan.temperature
    logprobs = torch.log_softmax(scores, dim=-1)
    allowed = logprobs
    if plan.forbidden is not None:
        # Normalised anew: what is left may be too unlikely for float32 beside a forbidden id.
        allowed = torch.log_softmax(scores.index_put(plan.forbidden, scores.new_tensor(-torch.inf)), dim=-1)
    if plan.greedy is not None and bool(plan.greedy.all()):
        ids = allowed.argmax(dim=-1)
    else:
        probs = allowed.exp()
        ids = _invert(probs, uniforms)
        if plan.filtered is not None:
            chosen = _sample_filtered(probs[plan.filtered], plan.top_k, plan.top_p, uniforms[plan.filtered])
            ids = ids.index_copy(0, plan.filtered, chosen)
        if plan.greedy is not None:
            ids = torch.where(plan.greedy, allowed.argmax(dim=-1), ids)
    return ids, logprobs.gather(-1, ids[:, None])[:, 0]


def _sample_filtered(probs: Tensor, top_k: Tensor, top_p: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF sampling among the ``top_k`` most likely ids, then among the smallest set of those that holds
    ``top_p`` of their mass; (F, V), (F, 1), (F, 1), (F,) -> (F,)."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    ordered = ordered.masked_fill(rank >= top_k, 0.0)
    mass = ordered.cumsum(dim=-1)
    ordered = ordered.masked_fill((mass - ordered >= top_p * mass[:, -1:]) & (rank > 0), 0.0)
    return order.gather(-1, _invert(ordered, uniforms)[:, None])[:, 0]


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The index at which each row's cumulative weight passes ``uniforms`` times its total: (B, V), (B,) -> (B,).

    The threshold is kept below the total, so that an index of weight 0 is never returned.
    """
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1]
    threshold = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, threshold[:, None], right=True)[:, 0]
    return index.clamp_(max=weights.shape[-1] - 1)
