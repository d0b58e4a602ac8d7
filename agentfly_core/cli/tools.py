"""``agentfly tools``."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from agentfly_core.cli.output import json_option, load_plugins, plugin_option, show, show_json
from agentfly_core.plugins import Plugins
from agentfly_core.recipes.assemble import build_tool
from agentfly_core.recipes.reading import apply_overrides
from agentfly_core.types import Tool, ToolContext, ToolOutcome, ToolStatus, UsageError, text_of


@click.group()
def command() -> None:
    """List and call tools."""


@command.command("list")
@plugin_option
@json_option
def list_tools(plugin: tuple[str, ...], as_json: bool) -> None:
    """List every tool by name, with its arguments."""
    rows: list[dict[str, Any]] = []
    for registration in load_plugins(plugin).registry("tools"):
        row = {"name": registration.name, "plugin": registration.plugin, "distribution": registration.distribution}
        try:
            rows.append({**row, **_described(registration.resolve(), as_json)})
        except UsageError as error:  # one broken tool does not hide the others
            rows.append({**row, "error": str(error), "description": f"error: {error}"})
    show(rows, as_json=as_json, columns=("name", "arguments", "description", "plugin"))


@command.command("call")
@click.argument("name")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="As in a recipe (repeatable).")
@plugin_option
@json_option
@click.pass_context
def call_tool(
    ctx: click.Context, name: str, arguments: str, options: tuple[str, ...], plugin: tuple[str, ...], as_json: bool
) -> None:
    """Call a tool with arguments given as a JSON object. Exit code 1: the call failed."""
    given: dict[str, Any] = {}
    apply_overrides(given, options)
    plugins = load_plugins(plugin)
    tool = build_tool(name, given, plugins, Path.cwd())
    try:
        values = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise UsageError(f"the arguments {arguments!r:.100} are no JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(
            f'the arguments must be a JSON object such as \'{{"expression": "1+1"}}\', got {arguments!r:.100}'
        )
    outcome = asyncio.run(_call(tool, values, plugins))
    if as_json:
        show_json({**asdict(outcome), "status": outcome.status.value})
    else:
        click.echo(text_of(outcome.content), err=outcome.status is not ToolStatus.OK)
        images = 0 if isinstance(outcome.content, str) else sum(part["type"] == "image" for part in outcome.content)
        if images:
            click.echo(f"({images} image{'s' if images > 1 else ''} not shown)", err=True)
    ctx.exit(0 if outcome.status is ToolStatus.OK else 1)


async def _call(tool: Tool, values: dict[str, Any], plugins: Plugins) -> ToolOutcome:
    from agentfly_core.call_loop import on_call_loop
    from agentfly_core.recipes.resources import build_resources

    resources, scope = build_resources(plugins), contextlib.AsyncExitStack()
    try:
        return await tool.call(values, ToolContext(resources=resources, scope=scope))
    finally:
        await on_call_loop(scope.aclose)  # where the tool entered it
        await resources.close()


def _described(tool: Tool, as_json: bool) -> dict[str, Any]:
    if as_json:
        return {"description": tool.description, "parameters": tool.parameters}
    return {"description": tool.description.partition("\n")[0], "arguments": _signature(tool)}


def _signature(tool: Tool) -> str:
    """``expression, digits?``: the arguments, optional ones marked."""
    required: Iterable[str] = tool.parameters.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in tool.parameters.get("properties", {}))
