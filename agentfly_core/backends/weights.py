"""Taking over new weights: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from agentfly_core.types import UsageError


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the model's own tensors; nothing is copied unless everything fits.

    Names and shapes must be those of the model's state dict. Of tied tensors one name is enough.

    Raises:
        UsageError: a name is missing, unexpected or of another shape, or tied names carry different values.
    """
    own = model.state_dict()
    if unexpected := sorted(set(weights) - set(own)):
        raise UsageError(f"new weights carry names that the model does not have: {_some(unexpected)}")
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, tensor in own.items():
        groups.setdefault((tensor.data_ptr(), *tensor.shape) if tensor.numel() else (id(tensor),), []).append(name)
    given = {names[0]: [n for n in names if n in weights] for names in groups.values()}
    if missing := sorted(name for name, found in given.items() if not found):
        raise UsageError(f"new weights lack names that the model has: {_some(missing)}")
    if wrong := sorted(n for n in weights if weights[n].shape != own[n].shape):
        name = wrong[0]
        raise UsageError(
            f"new weights of another shape: {_some(wrong)} ({name} is {tuple(weights[name].shape)}, "
            f"the model's is {tuple(own[name].shape)})"
        )
    for found in given.values():
        first = weights[found[0]]
        if any(weights[n] is not first and not torch.equal(weights[n], first) for n in found[1:]):
            raise UsageError(f"the model ties {' and '.join(found)}, but the new weights differ between them")
    with torch.no_grad():
        for name, found in given.items():
            own[name].copy_(weights[found[0]])


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
