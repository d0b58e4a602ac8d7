"""What ``agentfly plugins doctor`` examines."""

from __future__ import annotations

from collections.abc import Iterator

from agentfly_core.cli import COMMANDS, load_command, plugin_commands
from agentfly_core.plugin_faults import heavy_imports, unresolved
from agentfly_core.plugins import PluginRecord, Plugins
from agentfly_core.registry import KINDS
from agentfly_core.types.errors import AgentFlyError

Finding = dict[str, str]


def examine(plugins: Plugins) -> list[Finding]:
    """Everything that is wrong with the installed plugins and commands."""
    loaded = [record.name for record in plugins.records if record.state == "loaded"]
    heavy = {name: heavy_imports(name) for name in loaded} if heavy_imports(*loaded) else {}
    findings = [
        _finding(record, problem)
        for record in plugins.records
        for problem in (*_problems(record), *_weight(heavy.get(record.name, [])))
    ]
    return findings + list(_clashes(plugins)) + list(_commands())


def _problems(record: PluginRecord) -> Iterator[str]:
    if record.state in ("failed", "incompatible"):
        yield f"{record.state}: {record.error}"
    if record.state == "loaded":
        yield from unresolved(record)


def _weight(heavy: list[str]) -> Iterator[str]:
    if heavy:
        yield f"its register hooks import {', '.join(heavy)}: register an import path 'module:attribute' instead"


def _clashes(plugins: Plugins) -> Iterator[Finding]:
    for kind in KINDS:
        registrations = list(plugins.registry(kind))
        for name in plugins.registry(kind).names():
            same = [r for r in registrations if r.name == name]
            for r in same if len(same) > 1 else ():
                others = ", ".join(o.qualified for o in same if o is not r)
                problem = f"{kind} {name!r} is also registered as {others}: the short name cannot be used"
                yield {"plugin": r.plugin, "distribution": r.distribution, "problem": problem}


def _commands() -> Iterator[Finding]:
    for name, entries in plugin_commands().items():
        distribution = entries[0].dist.name if entries[0].dist else entries[0].value
        where = {"plugin": name, "distribution": distribution}
        if name in COMMANDS:
            yield {**where, "problem": f"its command {name!r} is hidden by the core's own"}
            continue
        try:
            load_command(name, entries)
        except AgentFlyError as error:
            yield {**where, "problem": str(error)}


def _finding(record: PluginRecord, problem: str) -> Finding:
    return {"plugin": record.name, "distribution": record.distribution, "problem": problem}
