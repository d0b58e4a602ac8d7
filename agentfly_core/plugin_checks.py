"""What a plugin object must be before any of its code is called."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import pluggy

from agentfly_core import hookspecs
from agentfly_core.types.errors import UsageError

_UNDECLARED = (1, 1)
"""What a plugin without ``AGENTFLY_API`` is taken to support: the first version."""


def incompatibility(plugin: Any, distribution: str) -> str:
    """Why the plugin and this core do not fit together, or the empty string.

    Raises:
        UsageError: its declaration cannot be understood.
    """
    declared = getattr(plugin, "AGENTFLY_API", _UNDECLARED)
    pair = isinstance(declared, tuple) and len(declared) == 2 and all(isinstance(v, int) for v in declared)
    if not pair or declared[0] > declared[1]:
        raise UsageError(f"AGENTFLY_API must be a pair of integers (lowest, highest), got {declared!r}")
    (low, high), ours = declared, hookspecs.PLUGIN_API_VERSION
    if low <= ours <= high:
        return ""
    side = distribution if high < ours else "agentfly-core"
    return f"it supports plugin API {low} to {high}, this agentfly-core has {ours}: upgrade {side}"


def check_plugin(plugin: Any) -> None:
    """Refuse what would be ignored, or would break later, if it were registered.

    Raises:
        UsageError: it is None, a class or not hashable; it marks a hook that does not exist, or one that is not a
            plain function; or it has a function named like a hook that lacks ``@hookimpl``.
    """
    if plugin is None or inspect.isclass(plugin):
        raise UsageError(f"a plugin is a module or an instance, got {plugin!r:.100}")
    if getattr(type(plugin), "__hash__", None) is None:
        raise UsageError(f"a plugin object must be hashable (compared by identity), {type(plugin).__name__} is not")
    specs = {name for name in vars(hookspecs) if getattr(getattr(hookspecs, name), "agentfly_spec", None) is not None}
    for attribute in dir(plugin):
        function = inspect.getattr_static(plugin, attribute, None)
        function = function.__func__ if isinstance(function, staticmethod | classmethod) else function
        marks = getattr(function, "agentfly_impl", None) if inspect.isroutine(function) else None
        if marks is not None:
            _check_implementation(marks.get("specname") or attribute, function, marks, specs)
        elif attribute in specs and inspect.isfunction(function) and not hasattr(function, "agentfly_spec"):
            raise UsageError(f"{attribute} is named like a hook but lacks @hookimpl, so it would never be called")


def _check_implementation(hook: str, function: Any, marks: dict[str, Any], specs: set[str]) -> None:
    if hook not in specs and not marks.get("optionalhook"):
        near = difflib.get_close_matches(hook, specs, n=1)
        raise UsageError(
            f"there is no hook {hook!r}{f'; did you mean {near[0]!r}?' if near else ''} "
            "(mark it @hookimpl(optionalhook=True) if another version has it)"
        )
    if marks.get("wrapper") or marks.get("hookwrapper"):
        raise UsageError(f"{hook} is a hook wrapper; a plugin cannot wrap the hooks of others")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{hook} must be a plain function, not async and no generator: nothing would run it")


def implements_hooks(manager: pluggy.PluginManager, plugin: Any) -> bool:
    """Whether the registered plugin implements any hook at all."""
    return bool(manager.get_hookcallers(plugin))
