"""Whether a plugin keeps the rules of plugins."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from agentfly_core.plugin_faults import heavy_imports, unresolved
from agentfly_core.plugins import PluginRecord, Plugins
from agentfly_core.testing.report import Report, show
from agentfly_core.types.errors import UnknownName, UsageError

DECLARE = "write AGENTFLY_API = (1, 1) into it: the lowest and highest plugin API version that it works with"
REGISTER = "register the import path 'module:attribute', which is imported on first use"


def check_plugin(plugin: str | Path | ModuleType, *, resolve: bool = True) -> None:
    """Check that a plugin loads, declares its API version, imports nothing heavy and offers what it registers.

    Args:
        plugin: entry-point or distribution name of an installed plugin; or a module, its name, or a Python file.
        resolve: import every lazy registration, which needs the packages that they need.

    Raises:
        ConformanceError: with every violation found.
        UnknownName: no plugin is installed under the name, and it is no file or module either.
    """
    target = plugin.__name__ if isinstance(plugin, ModuleType) else str(plugin)
    plugins = Plugins.load(warn=False)
    report = Report(f"plugin {target!r}")
    installed = [r for r in plugins.records if target in (r.name, r.distribution, r.target)]
    for record in installed or _load(plugins, target, report):
        where = f"plugin {record.name!r} of {record.distribution}"
        if record.state != "loaded":
            fix = "see the traceback: agentfly plugins list -v"
            report.add(f"it is {record.state}{record.error and ': '}{record.error}", where=where, fix=fix)
            continue
        module = plugins.manager.get_plugin(f"{record.name} ({record.distribution})")
        report.expect(hasattr(module, "AGENTFLY_API"), "AGENTFLY_API is not declared", where=where, fix=DECLARE)
        for problem in unresolved(record) if resolve else ():
            report.add(problem, where=where, fix="mend the import path, or install what it needs")
        _light(report, record, where, installed=bool(installed))
    report.finish()


def _load(plugins: Plugins, target: str, report: Report) -> list[PluginRecord]:
    """A module or file that is not installed as a plugin."""
    try:
        return [plugins.load_path(target)]
    except UsageError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == target:
            raise UnknownName("plugin", target, {r.name for r in plugins.records}) from error
        report.add(str(error), where="loading it", fix="import it yourself to see where it fails")
        return []


def _light(report: Report, record: PluginRecord, where: str, *, installed: bool) -> None:
    heavy = heavy_imports(record.name) if installed else heavy_imports(module=record.target)
    what = f"loading it imports {', '.join(heavy)}"
    report.expect(not heavy, show(what).strip("'\""), where=where, fix=REGISTER)
