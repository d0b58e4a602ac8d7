"""Muon: momentum, made orthogonal, for matrices that map hidden states to hidden states.

Keller Jordan et al., 2024 (kellerjordan.github.io/posts/muon). The same as ``torch.optim.Muon`` with
``adjust_lr_fn="original"``, which computes in bfloat16 everywhere: on a CPU that is several times slower than float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that drives singular values towards 1, from 0.68 to 1.13."""

ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum whose updates are replaced by the nearest (about) orthogonal matrix.

    Args:
        params: matrices.
        lr: of a square matrix; one with more rows than columns has lr * sqrt(rows / columns).
        weight_decay: decoupled, as in AdamW.
    """

    def __init__(
        self, params: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step on all matrices that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group["lr"], group["weight_decay"], group["momentum"])
        return loss

    def _update(self, matrix: Tensor, gradient: Tensor, lr: float, weight_decay: float, momentum: float) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        state["momentum"].lerp_(gradient, 1 - momentum)
        update = orthogonalise(gradient.lerp(state["momentum"], momentum))
        rows, columns = matrix.shape
        matrix.mul_(1 - lr * weight_decay)
        matrix.add_(update, alpha=-lr * math.sqrt(max(1.0, rows / columns)))


def orthogonalise(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T, by Newton-Schulz iterations (m, n) -> (m, n).

    In bfloat16 on a GPU, which the iteration forgives, and in float32 on a CPU, where that is the faster.
    """
    a, b, c = COEFFICIENTS
    x: Tensor = matrix.to(torch.bfloat16 if matrix.is_cuda else torch.float32)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)
