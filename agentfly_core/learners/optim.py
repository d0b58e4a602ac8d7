"""Optimizers and their schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from agentfly_core.learners.muon import Muon
from agentfly_core.recipes.schema import OptimizerSection
from agentfly_core.types import UsageError


class ScheduledOptimizer:
    """AdamW, or Muon on matrices and AdamW on the rest, with gradient clipping and a learning-rate schedule.

    Weight decay is applied to matrices only.

    Args:
        total: optimizer steps of the whole run, for the schedule.
    """

    def __init__(self, model: nn.Module, section: OptimizerSection, total: int) -> None:
        self.section = section
        self._total = total
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizers = _optimizers(model, section)
        self._base = [[float(group["lr"]) for group in o.param_groups] for o in self._optimizers]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def clip_gradients(self) -> float:
        """Clip the gradients; returns their norm before that. If it is not finite the gradients are useless."""
        return float(nn.utils.clip_grad_norm_(self._parameters, self.section.max_grad_norm))

    def step(self, position: int) -> float:
        """Take step number ``position`` (the first is 0) of the schedule; returns its learning rate.

        Raises:
            UsageError: it made weights that are not finite.
        """
        factor = lr_factor(self.section, position, self._total)
        for optimizer, base in zip(self._optimizers, self._base, strict=True):
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr * factor
            optimizer.step()
        largest = [torch.linalg.vector_norm(p.detach(), ord=math.inf) for p in self._parameters if p.numel()]
        if largest and not bool(torch.stack(largest).isfinite().all()):
            rate = self.section.lr * factor
            raise UsageError(
                f"the weights are not finite after an optimizer step with a learning rate of {rate:g}: "
                "they are not saved. Go on from the last checkpoint with a smaller optimizer.lr"
            )
        return self.section.lr * factor

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [optimizer.state_dict() for optimizer in self._optimizers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def lr_factor(section: OptimizerSection, position: int, total: int) -> float:
    """What the learning rate is multiplied by at step ``position`` of ``total``, the first being 0.

    Linear warm-up takes ``warmup_steps`` steps, the last of them at 1; then the schedule falls towards
    ``final_lr_fraction``, which it would reach one step after the last.
    """
    if position < section.warmup_steps:
        return (position + 1) / section.warmup_steps
    if section.schedule == "constant":
        return 1.0
    progress = min(1.0, (position - section.warmup_steps) / max(1, total - section.warmup_steps))
    left = 1 - progress if section.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return section.final_lr_fraction + (1 - section.final_lr_fraction) * left


def _optimizers(model: nn.Module, section: OptimizerSection) -> list[torch.optim.Optimizer]:
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = _hidden_matrices(model) if section.name == "muon" else []
    with_muon = {id(p) for p in matrices}
    rest = [p for p in trained if id(p) not in with_muon]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "weight_decay": section.weight_decay},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=section.lr, betas=section.betas, eps=section.eps, fused=True
    )
    if not matrices:
        return [adamw]
    muon = Muon(matrices, lr=section.lr * section.matrix_lr_scale, weight_decay=section.weight_decay)
    return [muon, adamw]


def _hidden_matrices(model: Any) -> list[nn.Parameter]:
    """What Muon is for: matrices that map hidden states to hidden states, not embeddings and not the head."""
    outer = {id(m.weight) for m in (model.get_input_embeddings(), model.get_output_embeddings()) if m is not None}
    return [p for p in model.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in outer]
