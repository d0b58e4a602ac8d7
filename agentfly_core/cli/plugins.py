"""``agentfly plugins``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from agentfly_core.cli.output import json_option, show, show_json
from agentfly_core.plugins import PluginRecord, Plugins, discover
from agentfly_core.registry import KINDS
from agentfly_core.types.errors import UnknownName


@click.group()
def command() -> None:
    """List, examine and create plugins."""


@command.command("list")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of each failed plugin.")
@click.option("--metadata", is_flag=True, help="Run no plugin code: what is installed, from metadata alone.")
@json_option
def list_plugins(verbose: bool, metadata: bool, as_json: bool) -> None:
    """List plugins with their state, and the cause where one failed."""
    if metadata:
        records = [record for record, _ in discover()]
        rows = [{k: v for k, v in _row(r).items() if k not in ("state", "error", "provides")} for r in records]
        return show(rows, as_json=as_json, columns=("name", "distribution", "version", "target"))
    records = Plugins.load(warn=False).records
    rows = [{**_row(r), **({"traceback": r.traceback} if verbose else {})} for r in records]
    if as_json:
        return show_json(rows)
    table = [{**row, "provides": _counts(record)} for row, record in zip(rows, records, strict=True)]
    show(table, as_json=False, columns=("name", "distribution", "version", "state", "provides", "error"))
    for record in records if verbose else ():
        if record.traceback:
            click.echo(f"\n{record.name} ({record.distribution}):\n{record.traceback.rstrip()}")


@command.command("show")
@click.argument("name")
@json_option
def show_plugin(name: str, as_json: bool) -> None:
    """Show one plugin and all that it registers."""
    records = Plugins.load(warn=False).records
    found = [r for r in records if name in (r.name, r.distribution)]
    if not found:
        raise UnknownName("plugin", name, {r.name for r in records})
    if as_json:
        return show_json([{**_row(r), "registrations": _registrations(r), "traceback": r.traceback} for r in found])
    for record in found:
        click.echo(f"{record.name}: {record.state}, from {record.distribution} {record.version} ({record.target})")
        if record.error:
            click.echo(record.traceback.rstrip() or record.error)
        if record.registrations:
            show(_registrations(record), as_json=False, columns=("kind", "name", "summary"))


@command.command("doctor")
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Load everything, lazy parts included, and report what is broken. Exit code 1: something is."""
    from agentfly_core.cli.doctor import examine

    plugins = Plugins.load(warn=False)
    findings = examine(plugins)
    if as_json:
        show_json(findings)
    for finding in findings if not as_json else ():
        click.echo(f"{finding['plugin']} ({finding['distribution']}): {finding['problem']}")
    if not as_json:
        checked = sum(len(r.registrations) for r in plugins.records)
        click.echo(f"{len(plugins.records)} plugins, {checked} registrations, {len(findings)} problems")
    ctx.exit(1 if findings else 0)


@command.command("new")
@click.argument("name")
@click.option("--into", type=click.Path(file_okay=False), default=".", help="Folder to create it in.")
def new_plugin(name: str, into: str) -> None:
    """Create a small plugin package: a tool, a reward and a test."""
    from agentfly_core.cli.scaffold import PREFIX, create

    folder = create(name, into)
    place, name = shlex.quote(str(folder)), folder.name.removeprefix(PREFIX)
    click.echo(f"created {folder}\nnext: pip install -e {place} && pytest {place} && agentfly plugins show {name}")


def _row(record: PluginRecord) -> dict[str, Any]:
    provides = {k: names for k in KINDS if (names := sorted(r.name for r in record.registrations if r.kind == k))}
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "target": record.target,
        "state": record.state,
        "error": record.error,
        "provides": provides,
    }


def _counts(record: PluginRecord) -> str:
    """``2 tools, 1 reward``."""
    counts = {kind: sum(r.kind == kind for r in record.registrations) for kind in KINDS}
    return ", ".join(f"{n} {kind if n > 1 else kind.removesuffix('s')}" for kind, n in counts.items() if n)


def _registrations(record: PluginRecord) -> list[dict[str, Any]]:
    return [
        {
            "kind": r.kind,
            "name": r.name,
            "qualified": r.qualified,
            "summary": r.summary,
            "from": r.item if isinstance(r.item, str) else f"{type(r.item).__module__}.{type(r.item).__qualname__}",
        }
        for r in record.registrations
    ]
