"""What is wrong with a plugin that loads: parts that cannot be imported, and register hooks that import too much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentfly_core.types.errors import AgentFlyError

if TYPE_CHECKING:
    from agentfly_core.plugins import PluginRecord

HEAVY = (
    *("torch", "transformers", "tokenizers", "safetensors", "datasets", "accelerate", "deepspeed", "vllm", "ray"),
    *("jax", "tensorflow", "numpy", "scipy", "pandas", "pyarrow", "polars", "sklearn", "matplotlib", "sympy", "PIL"),
    *("openai", "anthropic", "litellm", "langchain", "docker", "selenium", "playwright", "gymnasium", "nltk", "spacy"),
)
"""Packages that a ``register_*`` hook must not import: every command would wait for them."""

_PROBE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from agentfly_core.plugins import Plugins
before = set(sys.modules)
plugins = Plugins.load(warn=False)
if sys.argv[2]:
    plugins.load_path(sys.argv[2])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def unresolved(record: PluginRecord) -> Iterator[str]:
    """Why registrations of a loaded plugin cannot be used, one line each."""
    for registration in record.registrations:
        try:
            registration.resolve()
        except AgentFlyError as error:
            yield str(error)


def heavy_imports(*names: str, module: str = "") -> list[str]:
    """Heavy packages that loading these plugins imports, seen in a fresh interpreter.

    Args:
        names: entry points of installed plugins.
        module: or a module or file that is no installed plugin.
    """
    chosen = {"AGENTFLY_LOAD_PLUGINS": ",".join(names)} if names else {"AGENTFLY_DISABLE_PLUGINS": "all"}
    switches = ("AGENTFLY_LOAD_PLUGINS", "AGENTFLY_DISABLE_PLUGINS")
    environment = {**{k: v for k, v in os.environ.items() if k not in switches}, **chosen}
    command = [sys.executable, "-c", _PROBE, json.dumps(sys.path), module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode:
        return [f"something that ends the interpreter (exit code {done.returncode})"]
    loaded = json.loads(done.stdout.strip().splitlines()[-1])
    return [package for package in HEAVY if package in loaded]
