"""torch, imported when first used: what an algorithm is called, takes and needs can be asked without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly_core.types import MissingDependency

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch:
        """Stands for the module; its attributes are the module's."""

        def __getattr__(self, name: str) -> Any:
            try:
                import torch
            except ImportError as error:
                raise MissingDependency("torch", "training", "agentfly-core[local]") from error
            return getattr(torch, name)

    torch = _Torch()
