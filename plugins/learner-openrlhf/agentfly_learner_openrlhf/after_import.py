"""Doing something right after a module is imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

Then = Callable[[ModuleType], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as it would be found anyway, and has its loader call ``then`` once it is executed."""

    def __init__(self, hooks: Mapping[str, Then]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self._hooks.pop(fullname, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(hooks: Mapping[str, Then]) -> None:
    """Call each function with its module: when that is imported, or now if it is already."""
    later = {name: then for name, then in hooks.items() if name not in sys.modules}
    sys.meta_path.insert(0, _Finder(later))
    for name in hooks.keys() - later.keys():
        hooks[name](sys.modules[name])
