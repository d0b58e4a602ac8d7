"""Whether an RL algorithm keeps its contract (``types.Algorithm``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agentfly_core.testing.report import Report, show
from agentfly_core.types import AdvantageOutput, Algorithm, LossOutput, MissingDependency, Needs, TrainBatch

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-9
"""Of float64 numbers."""
OPTIONAL = {
    "values": "critic",
    "ref_logp": "reference",
    "old_logp": "old_logp",
    "rollout_logp": "rollout_logp",
    "anchors": "anchors",
}
"""Fields of a batch that are None unless the algorithm asks for them, with the switch of ``Needs``."""
MEND = {
    "order": "let nothing depend on the order of rows or on the numbers of groups",
    "padding": "leave out rows with chain -1 and positions off the mask: torch.where before any sum, mean or exp",
    "unscored": "leave unscored chains out of every statistic (batch.scored): their rewards are NaN",
    "segments": "count chains, not rows: rows with the same batch.chain are one chain",
    "parts": "divide by the counts given, which are the whole step's, never by what the rows at hand hold",
    "empty": "guard means over nothing: no chain may be scored",
}


def check_algorithm(algorithm: Algorithm, *, seeds: Iterable[int] = range(6)) -> None:
    """Check advantages and loss on random batches of two groups, with gaps, turns, unscored chains and garbage.

    What must not matter: the order of chains, padding, chains without a score, where a chain is cut into segments, how
    a step is cut into micro-batches. What must hold: shapes, finite numbers, zeros off the mask, no more inputs than
    ``needs`` says, zero advantages in groups of equal chains, a loss that falls when good tokens grow likelier.

    Args:
        seeds: of the batches.

    Raises:
        ConformanceError: with every violation found.
        MissingDependency: torch is not installed.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("torch", "check_algorithm", "agentfly-core[local]") from error
    from agentfly_core.testing.batches import random_batch

    report = Report(f"algorithm {getattr(algorithm, 'name', algorithm)!r}")
    lacking = [member for member in ("name", "needs", "advantages", "policy_loss") if not hasattr(algorithm, member)]
    fix = "implement agentfly_core.types.Algorithm (a factory is called first)"
    if report.expect(not lacking, f"it lacks {', '.join(lacking)}", where="the algorithm", fix=fix):
        good = isinstance(algorithm.needs, Needs)
        what = f"they are {show(algorithm.needs)}"
        if report.expect(good, what, where="needs", fix="return a types.Needs"):
            for seed in seeds:
                _Check(report, algorithm, random_batch(seed), seed).all()
    report.finish()


class _Check:
    """One random batch."""

    def __init__(self, report: Report, algorithm: Algorithm, batch: TrainBatch, seed: int) -> None:
        self.report, self.algorithm, self.batch, self.seed = report, algorithm, batch, seed
        self.chains = list(range(len(batch.rewards)))
        self.after = f"the batch of seed {seed}"

    def all(self) -> None:
        for check in (
            self._shapes, self._undeclared, self._order, self._padding, self._unscored, self._segments, self._parts,
            self._nothing_scored, self._equal_groups, self._direction,
        ):  # fmt: skip
            where = f"{check.__name__.strip('_').replace('_', ' ')}, {self.after}"
            with self.report.guard(where, "handle every batch that types.TrainBatch describes"):
                check()

    def _shapes(self) -> None:
        import copy

        batch, where = self.batch, f"advantages, {self.after}"
        before = copy.deepcopy(batch)
        out = self.algorithm.advantages(batch)
        if not isinstance(out, AdvantageOutput):
            self.report.add(f"it returned {show(out)}", where=where, fix="return a types.AdvantageOutput")
            return
        fix = "work on copies: the learner and other observers use the batch"
        self.report.expect(_unchanged(before, batch), "it changed the batch", where=where, fix=fix)
        for name, tensor in (("advantages", out.advantages), ("returns", out.returns)):
            if tensor is not None:
                self._check_tensor(tensor, name)
        good = all(math.isfinite(float(number)) for number in out.metrics.values())
        self.report.expect(good, "metrics are not finite", where=where, fix="give finite numbers")

    def _check_tensor(self, tensor: Tensor, name: str) -> None:
        where, mask = f"{name}, {self.after}", self.batch.mask
        good = tensor.shape == mask.shape
        what = f"shape {tuple(tensor.shape)} for a mask of {tuple(mask.shape)}"
        if not self.report.expect(good, what, where=where, fix="return (B, T-1), a number for each token"):
            return
        good = bool(tensor.isfinite().all())
        fix = "mask before you divide, and guard groups of one chain"
        self.report.expect(good, f"{name} are not finite", where=where, fix=fix)
        if name == "advantages":
            good = not bool(tensor[~mask].any())
            what = "advantages are not 0 off the mask"
            self.report.expect(good, what, where=where, fix="end with torch.where(batch.mask, advantages, 0.0)")

    def _undeclared(self) -> None:
        needs = self.algorithm.needs
        hidden: dict[str, Any] = {name: None for name, switch in OPTIONAL.items() if not getattr(needs, switch)}
        where = f"a batch without {', '.join(hidden)}"
        with self.report.guard(where, "declare in `needs` what it reads; the rest may be None"):
            advantages = self._advantages(dataclasses.replace(self.batch, **hidden))
            bare = self.batch if needs.rollout_logp else dataclasses.replace(self.batch, rollout_logp=None)
            self._loss(bare, advantages, [self.chains])

    def _order(self) -> None:
        import torch

        from agentfly_core.testing.batches import pick_chains

        order = torch.randperm(len(self.chains), generator=torch.Generator().manual_seed(self.seed)).tolist()
        what = "the order of chains changes the advantages"
        self._same("order", what, self._advantages(pick_chains(self.batch, order)), self._advantages(self.batch)[order])

    def _padding(self) -> None:
        from agentfly_core.testing.batches import pad

        padded = pad(self.batch, 2, 3)
        size, width = self.batch.mask.shape
        advantages = self._advantages(padded)
        expected = self._advantages(self.batch)
        self._same("padding", "padding changes the advantages", advantages[:size, :width], expected)
        grown, _ = self._loss(padded, advantages, [list(range(size + 2))])
        gradient, _ = self._loss(self.batch, expected, [self.chains])
        self._same("padding", "padding changes the gradient", grown[:size, :width], gradient)
        good = not bool(grown[~padded.mask].any())
        what = "tokens that were not sampled have a gradient"
        self.report.expect(good, what, where=f"policy_loss, {self.after}", fix=MEND["padding"])

    def _unscored(self) -> None:
        from agentfly_core.testing.batches import pick_chains, unscore

        scored = self.batch.scored.clone()
        scored[-1] = False
        batch = unscore(self.batch, scored)
        fewer = pick_chains(batch, self.chains[:-1])
        what = "a chain without a score changes the {} of others"
        with_it, without = self._advantages(batch), self._advantages(fewer)
        self._same("unscored", what.format("advantages"), with_it[:-1], without)
        gradient, _ = self._loss(batch, with_it, [self.chains])
        expected, _ = self._loss(fewer, without, [self.chains[:-1]], step=batch)
        self._same("unscored", what.format("gradient"), gradient[:-1], expected)

    def _segments(self) -> None:
        import torch

        from agentfly_core.testing.batches import split_rows

        whole = self._advantages(self.batch)
        cut, index = split_rows(self.batch, self.seed)
        advantages = self._advantages(cut)
        what = "cutting chains into segments changes the {}"
        self._same("segments", what.format("advantages"), advantages, torch.where(cut.mask, whole[index], 0.0))
        halves, _ = self._loss(cut, advantages, [list(range(len(index)))])
        expected, _ = self._loss(self.batch, whole, [self.chains])
        self._same("segments", what.format("gradient"), halves[0::2] + halves[1::2], expected)

    def _parts(self) -> None:
        advantages = self._advantages(self.batch)
        parts = [self.chains[:1], self.chains[1:3], self.chains[3:]]
        gradient, loss = self._loss(self.batch, advantages, [self.chains])
        summed, losses = self._loss(self.batch, advantages, parts)
        what = "the {} of micro-batches do not add up to the step's"
        self._same("parts", what.format("gradients"), summed, gradient)
        self._same("parts", what.format("losses"), losses, loss)
        doubled, _ = self._loss(self.batch, advantages, [self.chains], scale=2.0)
        good = _close(doubled, 2 * gradient)
        fix = "multiply the loss by `scale`: it undoes what the learner's ranks and accumulation divide"
        self.report.expect(good, "`scale` does not multiply the gradient", where=f"policy_loss, {self.after}", fix=fix)
        good = bool(gradient.isfinite().all())
        fix = "mask the log ratio before exp: garbage overflows, and inf * 0 is NaN"
        self.report.expect(good, "the gradient is not finite", where=f"policy_loss, {self.after}", fix=fix)

    def _nothing_scored(self) -> None:
        import torch

        from agentfly_core.testing.batches import unscore

        batch = unscore(self.batch, torch.zeros_like(self.batch.scored))
        advantages = self._advantages(batch)
        gradient, _ = self._loss(batch, advantages, [self.chains])
        good = not bool(advantages.any()) and not bool(gradient.any())
        what = "advantages or gradients are not 0 where no chain is scored"
        self.report.expect(good, what, where=f"nothing scored, {self.after}", fix=MEND["empty"])

    def _equal_groups(self) -> None:
        from agentfly_core.testing.batches import level

        needs = self.algorithm.needs
        if not needs.groups or needs.turns or needs.critic or needs.anchors:
            return  # these may tell chains of one score apart
        good = _close(self._advantages(level(self.batch)), 0.0 * self.batch.mask)
        what = "chains of a group that all scored the same have advantages"
        fix = "subtract the group's mean, and give exactly 0 where its scores are all equal"
        self.report.expect(good, what, where=f"equal groups, {self.after}", fix=fix)

    def _direction(self) -> None:
        advantages = self._advantages(self.batch)
        gradient, _ = self._loss(self.batch, advantages, [self.chains], shift=0.0)
        good = not bool((gradient * advantages).sum() > TOLERANCE)
        what = "the loss grows where tokens with positive advantage grow likelier"
        self.report.expect(good, what, where=f"policy_loss, {self.after}", fix="return -A log pi, to be minimised")
        good = bool(gradient.any()) or not bool(advantages.any())
        what = "there are advantages, but the loss has no gradient"
        self.report.expect(good, what, where=f"policy_loss, {self.after}", fix="build the loss from logp, undetached")

    def _advantages(self, batch: TrainBatch) -> Tensor:
        return self.algorithm.advantages(batch).advantages

    def _loss(
        self,
        batch: TrainBatch,
        advantages: Tensor,
        parts: list[list[int]],
        *,
        scale: float = 1.0,
        shift: float = 0.2,
        step: TrainBatch | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Gradient and loss, accumulated over micro-batches of the given rows; ``step`` gives the counts."""
        import torch

        from agentfly_core.testing.batches import counts

        assert batch.old_logp is not None
        logp = (batch.old_logp + shift * torch.sin(torch.arange(batch.old_logp.shape[1]))).requires_grad_()
        total = torch.zeros((), dtype=torch.float64)
        for part in parts:
            rollout = None if batch.rollout_logp is None else batch.rollout_logp[part]
            out = self.algorithm.policy_loss(
                logp[part], batch.old_logp[part], rollout, advantages[part], batch.mask[part],
                **counts(step or batch), scale=scale, chain=batch.chain[part],
            )  # fmt: skip
            if not isinstance(out, LossOutput) or out.loss.shape != () or not out.loss.requires_grad:
                raise TypeError(
                    f"policy_loss returned {show(out)}; it must be a LossOutput with a scalar that has a graph"
                )
            out.loss.backward()  # type: ignore[no-untyped-call]
            total += out.loss.detach()
        return (torch.zeros_like(logp) if logp.grad is None else logp.grad), total

    def _same(self, kind: str, what: str, actual: Tensor, expected: Tensor) -> None:
        self.report.expect(_close(actual, expected), what, where=self.after, fix=MEND[kind])


def _close(actual: Tensor, expected: Tensor) -> bool:
    import torch

    return actual.shape == expected.shape and torch.allclose(actual, expected.to(actual), rtol=0, atol=TOLERANCE)


def _unchanged(before: TrainBatch, after: TrainBatch) -> bool:
    import torch

    for field in dataclasses.fields(TrainBatch):
        old, new = getattr(before, field.name), getattr(after, field.name)
        pairs = zip(old.values(), new.values(), strict=True) if isinstance(old, dict) else [(old, new)]
        for a, b in pairs:
            if isinstance(a, torch.Tensor) and not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)):
                return False
    return True
