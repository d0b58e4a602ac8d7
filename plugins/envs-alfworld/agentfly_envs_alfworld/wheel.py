"""What the ``alfworld`` package ships: rules, grammar, floor plans, goals. Read without importing the package.

Importing it would make a folder in the user's home and set ``ALFWORLD_DATA`` to it.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

from agentfly_core.types import MissingDependency


@functools.lru_cache(maxsize=1)
def package_folder() -> Path:
    """Where the package lies.

    Raises:
        MissingDependency: it is not installed.
    """
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency("alfworld", "the environment 'alfworld'", "alfworld>=0.4.2")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.lru_cache(maxsize=8)
def package_text(*parts: str) -> str:
    """The text of one of its files."""
    return package_folder().joinpath(*parts).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=8)
def package_module(*parts: str) -> ModuleType:
    """One of its modules by path, as if it stood alone."""
    path = package_folder().joinpath(*parts)
    spec = importlib.util.spec_from_file_location(f"_agentfly_alfworld_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constants() -> ModuleType:
    """Rooms, receptacles, what fits where, what can be heated."""
    return package_module("gen", "constants.py")


def goals() -> dict[str, dict[str, str | list[str]]]:
    """Goals by task type: PDDL and sentences, with gaps for the objects."""
    library: dict[str, dict[str, str | list[str]]] = package_module("gen", "goal_library.py").gdict
    return library
