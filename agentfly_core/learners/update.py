"""One training step: from a batch of chains to optimizer steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentfly_core.algorithms.kl import KLKind, kl_estimate
from agentfly_core.learners.collate import Collated
from agentfly_core.learners.diagnostics import sampler_gap
from agentfly_core.learners.optim import ScheduledOptimizer
from agentfly_core.learners.packing import MicroBatch
from agentfly_core.learners.policy import Policy
from agentfly_core.types import Algorithm, derive_seed


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How a batch becomes optimizer steps; see the recipe's ``train`` section for the fields."""

    epochs: int = 1
    minibatches: int = 1
    micro_batch_tokens: int = 16384
    kl_coef: float = 0.0
    kl_kind: KLKind = "k3"
    recompute_old_logp: bool = False
    seed: int = 0

    @property
    def steps(self) -> int:
        """Optimizer steps a batch."""
        return self.epochs * self.minibatches


@dataclass(frozen=True, slots=True)
class Updater:
    """Takes the optimizer steps of a training step.

    The old logprobs are recomputed before the first of several optimizer steps, or where the algorithm or the settings
    ask for them. With a single step they are those of its own forward pass, detached.

    A micro-batch holds whole chains and is given the counts of the whole optimizer step, so that splitting changes
    memory and never the gradient.
    """

    policy: Policy
    algorithm: Algorithm
    optimizer: ScheduledOptimizer
    settings: UpdateSettings
    reference: Policy | None = None

    def update(self, data: Collated, step: int) -> dict[str, float]:
        """Train on the batch of training step ``step`` (the first is 1); returns numbers for the log.

        No optimizer step is taken where nothing can be learned: no scored chain with a sampled token, or all
        advantages 0 and no penalty. One whose loss or gradient is not finite is skipped and counted.
        """
        s, needs, batch = self.settings, self.algorithm.needs, data.batch
        chains = data.rows_of_chains()
        entropy: Tensor | None = None
        if s.steps > 1 or s.recompute_old_logp or needs.old_logp:
            batch.old_logp, entropy = self.policy.infer(data, chains, s.micro_batch_tokens)
        if self.reference is not None:
            batch.ref_logp, _ = self.reference.infer(data, chains, s.micro_batch_tokens)
        output = self.algorithm.advantages(batch)
        advantages = torch.where(batch.mask, output.advantages, 0.0).float()
        metrics: dict[str, float] = dict(output.metrics)
        idle = not bool(batch.mask.any()) or (not bool(advantages.any()) and s.kl_coef == 0)
        if idle and batch.old_logp is None:
            batch.old_logp, entropy = self.policy.infer(data, chains, s.micro_batch_tokens)
        seen = _Seen(batch.old_logp, entropy, torch.zeros(batch.mask.shape))
        taken: list[Mapping[str, float]] = []
        if not idle:
            for number, part in enumerate(self._minibatches(data, step)):
                position = (step - 1) * s.steps + number
                if any(chains[c] for c in part):
                    taken.append(
                        self._optimizer_step(data, advantages, [chains[c] for c in part], part, position, seen)
                    )
        metrics |= _averages(taken)
        metrics |= {
            "optim/steps": float(sum(1 - t["optim/skipped"] for t in taken)),
            "optim/skipped": float(sum(t["optim/skipped"] for t in taken)),
            "optim/idle": float(idle),
        }
        if seen.old_logp is None:
            seen.old_logp = seen.collected
        if batch.rollout_logp is not None:
            metrics |= sampler_gap(seen.old_logp, batch.rollout_logp, batch.mask)
        if seen.entropy is not None and batch.mask.any():
            metrics["entropy"] = float(seen.entropy[batch.mask].mean())
        return metrics

    def _minibatches(self, data: Collated, step: int) -> list[list[int]]:
        """Chain numbers of each optimizer step, whole groups together, shuffled by (seed, step, epoch)."""
        members: dict[int, list[int]] = defaultdict(list)
        for chain, group in enumerate(data.batch.group.tolist()):
            members[group].append(chain)
        groups = list(members.values())
        if self.settings.minibatches == 1:
            return [[chain for group in groups for chain in group]] * self.settings.epochs
        result = []
        for epoch in range(self.settings.epochs):
            seed = derive_seed(self.settings.seed, "minibatches", step, epoch)
            order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)).tolist()
            for part in range(self.settings.minibatches):
                result.append([c for g in order[part :: self.settings.minibatches] for c in groups[g]])
        return result

    def _optimizer_step(
        self,
        data: Collated,
        advantages: Tensor,
        rows: Sequence[Sequence[int]],
        chains: Sequence[int],
        position: int,
        seen: _Seen,
    ) -> dict[str, float]:
        """One optimizer step on the rows of these chains."""
        batch = data.batch
        tokens = int(batch.mask[[row for unit in rows for row in unit]].sum())
        counts = {
            "token_count": tokens,
            "nonempty_count": sum(1 for unit in rows if unit),
            "chain_count": len(chains),
        }
        losses: dict[str, float] = defaultdict(float)
        sums: dict[str, float] = defaultdict(float)
        self.optimizer.zero_grad()
        for part in self.policy.plan(data, rows, self.settings.micro_batch_tokens):
            for name, value in self._micro_batch(data, advantages, part, counts, seen).items():
                (losses if name.startswith("loss/") else sums)[name] += value
        norm = self.optimizer.clip_gradients()
        if not (math.isfinite(sum(losses.values())) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            return {"optim/skipped": 1.0}
        lr = self.optimizer.step(position)
        self.optimizer.zero_grad()
        means = {name: total / tokens for name, total in sums.items()}
        return {**losses, **means, "optim/grad_norm": norm, "optim/lr": lr, "optim/skipped": 0.0}

    def _micro_batch(
        self, data: Collated, advantages: Tensor, part: MicroBatch, counts: Mapping[str, int], seen: _Seen
    ) -> dict[str, float]:
        """Add the gradient of some rows; the numbers returned are sums over their tokens, losses whole."""
        batch, device = data.batch, self.policy.device
        rows, columns = part.rows, int(data.lengths[part.rows].max()) - 1

        def here(x: Tensor) -> Tensor:
            return x[rows, :columns].to(device)

        logp, entropy = self.policy.logprobs(
            data.token_ids[rows, : columns + 1], batch.mask[rows, :columns], part.packs
        )
        seen.add(rows, columns, logp, entropy)
        mask = here(batch.mask)
        old = logp.detach() if seen.old_logp is None else here(seen.old_logp)
        rollout = None if batch.rollout_logp is None else here(batch.rollout_logp)
        output = self.algorithm.policy_loss(
            logp, old, rollout, here(advantages), mask, chain=batch.chain[rows].to(device), **counts
        )
        loss, sums = output.loss, {"loss/policy": float(output.loss.detach()), "loss/kl": 0.0}
        sums |= {name: float(value) for name, value in output.metrics.items()}
        if batch.ref_logp is not None:
            reference = here(batch.ref_logp)
            sums["kl/ref"] = float(kl_estimate(logp.detach(), reference, mask, "k3").sum())
            if self.settings.kl_coef > 0:
                estimate = kl_estimate(logp, reference, mask, self.settings.kl_kind)
                penalty = self.settings.kl_coef * estimate.sum() / counts["token_count"]
                sums["loss/kl"] = float(penalty.detach())
                loss = loss + penalty
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        return sums


@dataclass(slots=True)
class _Seen:
    """Logprobs and entropies of the weights that the step began with, (B, T-1), as they become known."""

    old_logp: Tensor | None
    entropy: Tensor | None
    collected: Tensor

    def add(self, part: Sequence[int], columns: int, logp: Tensor, entropy: Tensor) -> None:
        """Keep those of a forward pass, unless they were computed before the update."""
        if self.old_logp is not None:
            return
        if self.entropy is None:
            self.entropy = torch.zeros_like(self.collected)
        self.collected[part, :columns] = logp.detach().cpu()
        self.entropy[part, :columns] = entropy.cpu()


def _averages(taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each number over the optimizer steps that have it."""
    names = dict.fromkeys(name for t in taken for name in t)
    values = {name: [t[name] for t in taken if name in t] for name in names}
    return {name: sum(v) / len(v) for name, v in values.items()}
