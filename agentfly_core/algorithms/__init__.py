"""RL algorithms: advantages and losses as pure functions over tensors. Importing this package needs torch.

Where to find a formula: group baselines in ``group``, whitened returns in ``reinforce``, turn-level credit in
``turns``, GAE in ``gae`` and ``ppo``; token losses in ``losses``, their mean over a batch in ``aggregation``, the ratio
between engine and trainer in ``corrections``, penalties against a reference model in ``kl``. Conventions shared by all
of them are in ``statistics`` (groups, whitening) and ``sampled`` (chains without their gaps).
"""

from __future__ import annotations

from agentfly_core.types import MissingDependency

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependency("torch", "training", "agentfly-core[local]") from error
