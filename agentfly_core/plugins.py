"""Finding plugins, keeping a broken one from harming the others, and looking names up.

``Plugins.load()`` loads every entry point of the group ``agentfly`` under its own ``try``, calls each
``register_*`` hook once per plugin, and keeps for every name which distribution it came from.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from agentfly_core import hookspecs
from agentfly_core.hookspecs import PLUGIN_API_VERSION
from agentfly_core.registry import KINDS, Registration, Registry, check_item, describe
from agentfly_core.types.errors import UsageError

GROUP = "agentfly"
BUILTIN = "core"


@dataclass(slots=True)
class PluginRecord:
    """What became of one plugin.

    ``state`` is ``loaded``, ``failed`` (import or a hook raised, or a registration was refused), ``incompatible``
    (another plugin API version) or ``disabled`` (by an environment variable).
    """

    name: str
    distribution: str
    version: str
    target: str
    state: str = "loaded"
    error: str = ""
    traceback: str = ""
    registrations: list[Registration] = field(default_factory=list)
    attempted: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name) of every registration it tried, those of a failed hook included."""


class Plugins:
    """The loaded plugins and the registries they filled."""

    def __init__(self) -> None:
        self.records: list[PluginRecord] = []
        self.manager = pluggy.PluginManager("agentfly")
        self.manager.add_hookspecs(hookspecs)
        self._registries = {kind: Registry(kind, self.records) for kind in KINDS}
        self._silenced: set[int] = set()

    @classmethod
    def load(cls, *, warn: bool = True) -> Plugins:
        """Load the built-ins and every installed plugin that the environment does not switch off.

        ``AGENTFLY_DISABLE_PLUGINS``: comma-separated entry-point names not to load, or ``all``.
        ``AGENTFLY_LOAD_PLUGINS``: if set, the only ones to load. Built-ins always load.

        Args:
            warn: warn once for each plugin that failed.
        """
        plugins = cls()
        core = PluginRecord(BUILTIN, "agentfly-core", _version("agentfly-core"), "agentfly_core.builtins")
        plugins._load_record(core, lambda: importlib.import_module("agentfly_core.builtins"))
        disabled, only = _names("AGENTFLY_DISABLE_PLUGINS"), _names("AGENTFLY_LOAD_PLUGINS")
        for record, entry in discover():
            if (disabled and (record.name in disabled or "all" in disabled)) or (only and record.name not in only):
                record.state = "disabled"
                plugins.records.append(record)
            else:
                plugins._load_record(record, entry.load)
        if warn:
            plugins.warn_of_failures()
        return plugins

    def warn_of_failures(self) -> None:
        """One ``UserWarning`` for each plugin that failed or is incompatible."""
        for record in self.records:
            if record.state in ("failed", "incompatible"):
                text = f"plugin {record.name!r} ({record.distribution}) {record.state}: {record.error}"
                warnings.warn(f"{text} (agentfly plugins list -v)", stacklevel=3)

    def load_path(self, target: str | Path, *, base: Path | None = None) -> PluginRecord:
        """Load a user's own Python file or importable module as a plugin; a second time does nothing.

        Besides its hooks, every tool and reward bound to a module-level name is registered.

        Raises:
            UsageError: it does not exist, or raises, or registers something wrong: the user asked for it by name.
        """
        text = str(target)
        is_file = text.endswith(".py")
        path = ((base or Path()) / text).resolve() if is_file else None
        name = path.stem if path else text
        key = str(path) if path else text
        for known in self.records:
            if known.target == key:
                return known
        if path is not None and not path.is_file():
            raise UsageError(f"plugin file {path} does not exist (named in the recipe's `plugins`)")
        record = PluginRecord(name, key, "", key)
        self._load_record(record, lambda: _import_file(path) if path else importlib.import_module(text), local=True)
        if record.state != "loaded":
            raise UsageError(f"plugin {key}: {record.error}\n{record.traceback}".rstrip())
        return record

    def registry(self, kind: str) -> Registry:
        """The registry of one kind, a key of ``registry.KINDS``: ``tools``, ``rewards``, ``templates`` and so on."""
        return self._registries[kind]

    def observe(self, observer: object) -> None:
        """Add an object whose observer hooks are called; ``unobserve`` takes it out."""
        self.manager.register(observer)

    def unobserve(self, observer: object) -> None:
        """Take an observer out."""
        self.manager.unregister(observer)

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call an observer hook of every plugin. One that raises is silenced and reported, and hurts nobody."""
        for impl in reversed(getattr(self.manager.hook, hook).get_hookimpls()):
            if id(impl) in self._silenced:
                continue
            try:
                impl.function(*(arguments[name] for name in impl.argnames))
            except Exception as error:
                self._silenced.add(id(impl))
                text = f"observer {impl.plugin_name!r} raised in {hook} and is disabled: {_one_line(error)}"
                warnings.warn(text, stacklevel=2)

    def _load_record(self, record: PluginRecord, load: Callable[[], Any], *, local: bool = False) -> None:
        self.records.append(record)
        try:
            plugin = load()
            if refusal := _incompatible(plugin, record):
                record.state, record.error = "incompatible", refusal
                return
            self.manager.register(plugin, name=f"{record.name} ({record.distribution})")
            self._ask(plugin, record)
            if local:
                self._register_members(plugin, record)
        except Exception as error:
            record.state, record.error, record.traceback = "failed", _one_line(error), traceback.format_exc()
            record.registrations.clear()
        if record.state == "failed" and "plugin" in locals():
            self.manager.unregister(plugin) if self.manager.is_registered(plugin) else None
        for registration in record.registrations:
            self._registries[registration.kind].add(registration)

    def _ask(self, plugin: Any, record: PluginRecord) -> None:
        """Call each ``register_*`` hook of this plugin alone, with a callback bound to it."""
        others = [p for p in self.manager.get_plugins() if p is not plugin]
        for kind in KINDS:
            collected: list[Registration] = []
            hook = self.manager.subset_hook_caller(f"register_{kind}", remove_plugins=others)
            hook(register=_callback(kind, record, collected))
            record.registrations += collected

    def _register_members(self, module: Any, record: PluginRecord) -> None:
        known = {id(r.item) for r in record.registrations}
        for kind in ("tools", "rewards"):
            register = _callback(kind, record, record.registrations)
            for value in list(vars(module).values()):
                if getattr(value, "__agentfly_kind__", None) == kind and id(value) not in known:
                    known.add(id(value))
                    register(value)


def discover() -> Iterable[tuple[PluginRecord, importlib.metadata.EntryPoint]]:
    """Installed plugins from package metadata alone: runs none of their code."""
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        dist = entry.dist
        record = PluginRecord(entry.name, dist.name if dist else "?", dist.version if dist else "?", entry.value)
        yield record, entry


def _callback(kind: str, record: PluginRecord, collected: list[Registration]) -> Callable[..., None]:
    def register(item: Any, *, name: str | None = None, summary: str = "") -> None:
        name = name or getattr(item, "name", None)
        if not isinstance(name, str) or not name or ":" in name or any(c.isspace() for c in name):
            raise UsageError(f"register_{kind}: {item!r} needs a name without ':' and white space, got {name!r}")
        record.attempted.add((kind, name))
        if any(r.kind == kind and r.name == name for r in (*collected, *record.registrations)):
            raise UsageError(f"register_{kind}: {record.name!r} registers {name!r} twice")
        if not isinstance(item, str):
            check_item(kind, name, item)
        elif item.count(":") != 1 or not all(p.strip() for p in item.split(":")):
            raise UsageError(f"register_{kind}: {item!r} is no import path of the form 'module:attribute'")
        collected.append(Registration(kind, name, item, record.name, record.distribution, summary or describe(item)))

    return register


def _incompatible(plugin: Any, record: PluginRecord) -> str:
    declared = getattr(plugin, "AGENTFLY_API", (PLUGIN_API_VERSION, PLUGIN_API_VERSION))
    if not (isinstance(declared, tuple) and len(declared) == 2 and all(isinstance(v, int) for v in declared)):
        raise UsageError(f"AGENTFLY_API must be a pair of integers (lowest, highest), got {declared!r}")
    low, high = declared
    if low <= PLUGIN_API_VERSION <= high:
        return ""
    side = record.distribution if high < PLUGIN_API_VERSION else "agentfly-core"
    return f"it supports plugin API {low} to {high}, this agentfly-core has {PLUGIN_API_VERSION}: upgrade {side}"


def _import_file(path: Path) -> ModuleType:
    name = f"agentfly_user_{path.stem}_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _names(variable: str) -> set[str]:
    return {n.strip() for n in os.environ.get(variable, "").split(",") if n.strip()}


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def summary(plugins: Plugins) -> list[Mapping[str, Any]]:
    """One plain mapping a plugin, for listings and ``--json``."""
    return [
        {
            "name": r.name,
            "distribution": r.distribution,
            "version": r.version,
            "state": r.state,
            "error": r.error,
            "provides": {k: sorted(x.name for x in r.registrations if x.kind == k) for k in KINDS},
        }
        for r in plugins.records
    ]
