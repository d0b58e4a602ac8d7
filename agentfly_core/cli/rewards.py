"""``agentfly rewards``."""

from __future__ import annotations

import inspect
from typing import Any

import click

from agentfly_core.cli.output import json_option, load_plugins, plugin_option, show
from agentfly_core.types import Reward, UsageError


@click.group()
def command() -> None:
    """List rewards."""


@command.command("list")
@plugin_option
@json_option
def list_rewards(plugin: tuple[str, ...], as_json: bool) -> None:
    """List every reward by name, with its options and the data-set fields it needs."""
    rows: list[dict[str, Any]] = []
    for registration in load_plugins(plugin).registry("rewards"):
        row = {"name": registration.name, "plugin": registration.plugin, "distribution": registration.distribution}
        try:
            rows.append({**row, "description": registration.summary, **_described(registration.resolve())})
        except UsageError as error:  # one broken reward does not hide the others
            rows.append({**row, "error": str(error), "description": f"error: {error}"})
    show(rows, as_json=as_json, columns=("name", "options", "fields", "description", "plugin"))


def _described(item: Any) -> dict[str, Any]:
    if isinstance(item, Reward) and not inspect.isclass(item):
        return {"options": [], "fields": sorted(item.fields)}
    return {"options": _options(item), "fields": []}


def _options(factory: Any) -> list[str]:
    """``name=default``, or the bare name of an option that must be given."""
    parameters = inspect.signature(factory).parameters.values()
    return [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
