"""What an optimizer step is made of, over all micro-batches and ranks: the denominators of losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from agentfly_learner_openrlhf.trainer.samples import REAL


@dataclass(frozen=True)
class Counts:
    """Of a whole optimizer step.

    Attributes:
        tokens, nonempty, chains: see ``types.Algorithm.policy_loss``; the first two are 1 where there are none.
        scale: what a micro-batch's loss is multiplied by, so that DeepSpeed's means over ranks and over accumulated
            micro-batches add up to the step's loss.
    """

    tokens: int = 0
    nonempty: int = 0
    chains: int = 0
    scale: float = 1.0


DENOMINATORS = ("batch_num_tokens", "global_batch_size")
"""What OpenRLHF divides its sums of losses by."""


def replace_in(module: ModuleType) -> None:
    """Put ours around OpenRLHF's two sources of denominators: its losses divide by them whatever they are.

    In a step without a scored chain they are 0, and 0 / 0 would become the weights of policy and critic.
    """
    module.iter_grad_accum_global_norm = _never_zero_in_each(module.iter_grad_accum_global_norm)
    module.get_loss_batch_info = _never_zero(module.get_loss_batch_info)


def _never_zero_in_each(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def iterate(data: Iterable[Any], strategy: Any, accumulated: int, mask_of: Any) -> Iterator[Any]:
        for experience, info in original(data, strategy, accumulated, mask_of):
            yield experience, _at_least(1 / max(int(accumulated), 1), info)

    return iterate


def _never_zero(original: Callable[..., Mapping[str, Any]]) -> Callable[..., Mapping[str, Any]]:
    def look_up(*arguments: Any, **options: Any) -> Mapping[str, Any]:
        return _at_least(1.0, original(*arguments, **options))

    return look_up


def _at_least(least: float, info: Mapping[str, Any]) -> dict[str, Any]:
    return {**info, **{name: info[name].clamp(min=least) for name in DENOMINATORS}}


class Counting(Protocol):
    """Whatever wants to know the counts."""

    counts: Counts


def real_chains(experience: Any) -> float:
    """How many of its rows are chains, not padding."""
    return sum(float(x) for x in experience.info[REAL])


def sum_over_ranks(strategy: Any, numbers: Sequence[float]) -> list[float]:
    """Sums over the data-parallel ranks; the same on all of them."""
    import torch
    from openrlhf.utils.loss_utils import _get_dp_group
    from torch import distributed

    device = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    total = torch.tensor(numbers, dtype=torch.float64, device=device)
    distributed.all_reduce(total, group=_get_dp_group(strategy))
    return [float(x) for x in total]


def with_counts(original: Callable[..., Iterator[Any]], receiver: Counting) -> Callable[..., Iterator[Any]]:
    """OpenRLHF's iteration over micro-batches, which draws all of an optimizer step before it yields the first."""

    def iterate(data: Iterable[Any], strategy: Any, accumulated: int, mask_of: Any) -> Iterator[Any]:
        drawn: list[float] = []
        for number, (experience, info) in enumerate(original(_tapped(data, drawn), strategy, accumulated, mask_of)):
            steps = max(int(accumulated), 1)
            if number % steps == 0:
                [chains] = sum_over_ranks(strategy, [sum(drawn)])
                drawn.clear()
                receiver.counts = Counts(
                    tokens=round(float(info["batch_num_tokens"]) * steps),
                    nonempty=round(float(info["global_batch_size"]) * steps),
                    chains=round(chains),
                    scale=float(info["dp_size"] * steps),
                )
            yield experience, info

    return iterate


def _tapped(data: Iterable[Any], drawn: list[float]) -> Iterator[Any]:
    for experience in data:
        drawn.append(real_chains(experience))
        yield experience


def with_dynamic_counts(original: Callable[..., Any], receiver: Counting) -> Callable[..., Any]:
    """The same where batches are cut by tokens: OpenRLHF then looks the numbers up for each micro-batch.

    There DeepSpeed accumulates nothing by itself, so that only the mean over ranks is undone.
    """

    def look_up(strategy: Any, mask: Any, **options: Any) -> Any:
        info = original(strategy, mask, **options)
        buffer, step = options["replay_buffer"], options["step"]
        if step == 0:
            buffer.agentfly_chains = _dynamic_chains(strategy, buffer)
        receiver.counts = Counts(
            tokens=round(float(info["batch_num_tokens"])),
            nonempty=round(float(info["global_batch_size"])),
            chains=buffer.agentfly_chains[step],
            scale=float(info["dp_size"]),
        )
        return info

    return look_up


def _dynamic_chains(strategy: Any, buffer: Any) -> list[int]:
    """Real chains of the optimizer step of each micro-batch."""
    windows: list[list[float]] = [[]]
    for indices, last in zip(buffer.dynamic_indices, buffer.dynamic_optimizer_step, strict=True):
        windows[-1].append(sum(float(buffer.items[i].info[REAL]) for i in indices))
        if last:
            windows.append([])
    totals = sum_over_ranks(strategy, [sum(window) for window in windows])
    return [round(total) for window, total in zip(windows, totals, strict=True) for _ in window]
