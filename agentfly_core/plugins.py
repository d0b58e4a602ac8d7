"""Finding plugins, keeping a broken one from harming the others, and looking names up.

``Plugins.load()`` loads every entry point of the group ``agentfly`` under its own ``try``, calls each
``register_*`` hook once per plugin, and keeps for every name which distribution it came from.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pluggy

from agentfly_core import hookspecs
from agentfly_core.plugin_checks import check_plugin, implements_hooks, incompatibility
from agentfly_core.registry import KINDS, Registration, Registry, check_item, describe, import_file
from agentfly_core.types.errors import UsageError

GROUP = "agentfly"
BUILTIN = "core"


@dataclass(slots=True)
class PluginRecord:
    """What became of one plugin.

    ``state`` is ``found`` (in the metadata; none of its code has run), ``loaded``, ``failed`` (import or a hook raised,
    or a registration was refused: none of its registrations count), ``incompatible`` (another plugin API version) or
    ``disabled`` (by an environment variable).
    """

    name: str
    distribution: str
    version: str
    target: str
    state: str = "found"
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
        self._silenced: set[pluggy.HookImpl] = set()

    @classmethod
    def load(cls, *, warn: bool = True) -> Plugins:
        """Load the built-ins and every installed plugin that the environment does not switch off.

        ``AGENTFLY_DISABLE_PLUGINS``: comma-separated entry-point names not to load, or ``all``.
        ``AGENTFLY_LOAD_PLUGINS``: if set and not empty, the only ones to load. Built-ins always load.

        Args:
            warn: warn once for each plugin that failed, and of names in these variables that no plugin has.
        """
        plugins = cls()
        core = PluginRecord(BUILTIN, "agentfly-core", _version("agentfly-core"), "agentfly_core.builtins")
        plugins._load_record(core, lambda: importlib.import_module("agentfly_core.builtins"))
        disabled, only = _names("AGENTFLY_DISABLE_PLUGINS"), _names("AGENTFLY_LOAD_PLUGINS")
        for record, entry in discover():
            if record.state == "failed":
                plugins.records.append(record)
            elif (disabled and (record.name in disabled or "all" in disabled)) or (only and record.name not in only):
                record.state = "disabled"
                plugins.records.append(record)
            else:
                plugins._load_record(record, entry.load)
        if warn:
            plugins.warn_of_failures()
            if absent := sorted((disabled | only) - {"all"} - {r.name for r in plugins.records}):
                text = f"no installed plugin has the name {', '.join(map(repr, absent))}"
                warnings.warn(f"{text} (AGENTFLY_DISABLE_PLUGINS, AGENTFLY_LOAD_PLUGINS)", stacklevel=2)
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
        known = next((r for r in self.records if r.target == key), None)
        if known is not None and known.state == "loaded":
            return known
        if known is not None and known.state in ("disabled", "incompatible"):
            raise UsageError(f"plugin {key} is {known.state}{f': {known.error}' if known.error else ''}")
        if path is not None and not path.is_file():
            raise UsageError(f"plugin file {path} does not exist (named in the recipe's `plugins`)")
        if known is not None:
            self.records.remove(known)  # it failed; the user may have mended it
        record = PluginRecord(name, key, "", key)
        error = self._load_record(
            record, lambda: import_file(path) if path else importlib.import_module(text), local=True
        )
        if record.state != "loaded":
            raise UsageError(f"plugin {key}: {record.error}{_line_in(error, path)}") from error
        return record

    def registry(self, kind: str) -> Registry:
        """The registry of one kind, a key of ``registry.KINDS``: ``tools``, ``rewards``, ``templates`` and so on."""
        return self._registries[kind]

    def observe(self, observer: object) -> None:
        """Add an object whose observer hooks are called; ``unobserve`` takes it out.

        Raises:
            UsageError: it marks a hook that does not exist, or one that could not be called.
        """
        check_plugin(observer)
        self.manager.register(observer)

    def unobserve(self, observer: object) -> None:
        """Take an observer out."""
        self.manager.unregister(observer)
        self._silenced = {impl for impl in self._silenced if impl.plugin is not observer}

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call an observer hook of every plugin. One that raises is silenced and reported, and hurts nobody."""
        for impl in reversed(getattr(self.manager.hook, hook).get_hookimpls()):
            if impl in self._silenced:
                continue
            values = [arguments[name] for name in impl.argnames]
            try:
                impl.function(*values)
            except (Exception, SystemExit) as error:
                self._silenced.add(impl)
                text = f"observer {impl.plugin_name!r} raised in {hook} and is disabled: {_one_line(error)}"
                warnings.warn(text, stacklevel=2)

    def _load_record(
        self, record: PluginRecord, load: Callable[[], Any], *, local: bool = False
    ) -> BaseException | None:
        """Load a plugin and keep what became of it; the error that made it fail is returned, not raised."""
        self.records.append(record)
        name = f"{record.name} ({record.distribution})"
        try:
            plugin = load()
            if refusal := incompatibility(plugin, record.distribution):
                record.state, record.error = "incompatible", refusal
                return None
            check_plugin(plugin)
            if (other := self._registered_as(plugin)) is not None:
                raise UsageError(f"the same object is loaded already as plugin {other}")
            self.manager.register(plugin, name=name)
            self._ask(plugin, record)
            if local:
                self._register_members(plugin, record)
            elif not implements_hooks(self.manager, plugin):
                raise UsageError("it implements no hook (mark functions with @hookimpl)")
        except (Exception, SystemExit) as error:
            record.state, record.error, record.traceback = "failed", _one_line(error), traceback.format_exc()
            record.registrations.clear()
            if self.manager.has_plugin(name) and self.manager.get_plugin(name) is locals().get("plugin"):
                self.manager.unregister(name=name)
            return error
        record.state = "loaded"
        for registration in record.registrations:
            self._registries[registration.kind].add(registration)
        return None

    def _registered_as(self, plugin: Any) -> str | None:
        return next((name for name, other in self.manager.list_name_plugin() if other is plugin), None)

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
    """Installed plugins from package metadata alone: runs none of their code.

    A distribution whose ``entry_points.txt`` cannot be read, and names our group, is a record in state ``failed``.
    """
    found: dict[tuple[str, str], tuple[PluginRecord, importlib.metadata.EntryPoint]] = {}
    for dist in importlib.metadata.distributions():
        try:
            entries = [e for e in dist.entry_points if e.group == GROUP]
            error = ""
        except Exception as reason:
            if f"[{GROUP}]" not in (dist.read_text("entry_points.txt") or ""):
                continue
            entries = [importlib.metadata.EntryPoint("?", "", GROUP)]
            error = f"its entry_points.txt is malformed: {_one_line(reason)}"
        for entry in entries:
            name = dist.metadata["Name"] or "?"
            record = PluginRecord(name if error else entry.name, name, dist.metadata["Version"] or "?", entry.value)
            if error:
                record.state, record.error = "failed", error
            # The first on sys.path is the one that is imported.
            found.setdefault((_normalized(name), entry.name), (record, entry))
    return [found[key] for key in sorted(found, key=lambda k: (k[1], k[0]))]


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


def _line_in(error: BaseException | None, path: Path | None) -> str:
    """Where in the user's file it was raised, as far as that is known."""
    if error is None or path is None:
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _names(variable: str) -> set[str]:
    return {n.strip() for n in os.environ.get(variable, "").split(",") if n.strip()}


def _one_line(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception's own __str__ may be broken, and must not end the listing
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
