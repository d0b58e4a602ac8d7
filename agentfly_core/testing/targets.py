"""Where another process finds a class or function."""

from __future__ import annotations

import importlib.util
from typing import Any


def import_path(factory: Any) -> str | None:
    """Where a worker process would import the factory from; None if it could not."""
    module, name = getattr(factory, "__module__", "__main__"), getattr(factory, "__qualname__", "<none>")
    if "<" in name or module == "__main__":
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a module without a spec: made by hand or by a test runner
        return None
    return f"{module}:{name}" if spec is not None else None
