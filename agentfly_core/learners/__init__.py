"""Learners: from trajectories to weights. Importing this package needs torch.

``local`` runs everything in this process; its parts are ``collate`` (trajectories to tensors), ``policy`` (forward
pass), ``update`` (optimizer steps), ``optim``, ``checkpointing``, ``evaluate`` and ``sft`` (supervised training).
"""

from __future__ import annotations

from agentfly_core.types import MissingDependency

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependency("torch", "training or evaluating", "agentfly-core[local]") from error
