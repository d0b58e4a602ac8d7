"""``environment.json``: on what a run ran."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

from agentfly_core.plugins import Plugins, discover, summary

_PACKAGES = ("agentfly-core", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "safetensors", "vllm", "ray")


def environment_facts(*, seed: int | None = None, plugins: Plugins | None = None) -> dict[str, Any]:
    """Versions, machine, seed and plugins, from metadata alone: imports none of the packages.

    Without ``plugins`` the installed ones are named; with it each comes with its state.
    """
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "seed": seed,
        "plugins": summary(plugins) if plugins else [_named(record) for record, _ in discover()],
    }


def _named(record: Any) -> dict[str, str]:
    return {"name": record.name, "distribution": record.distribution, "version": record.version}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
