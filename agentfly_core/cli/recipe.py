"""``agentfly recipe``: what recipes may hold, and what one resolves to."""

from __future__ import annotations

from typing import Any

import click

from agentfly_core.cli.output import json_option, load_plugins, show, show_json


@click.group()
def command() -> None:
    """List packaged recipes, show one as resolved, or the schema of recipes."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """The recipes that installed packages offer: train one with `agentfly train NAME`."""
    from agentfly_core.recipes.locate import offered_recipes

    rows = offered_recipes()
    if not rows and not as_json:
        click.echo("no packaged recipes; install some with: pip install agentfly-plugin-models-tiny")
        return
    show(rows, as_json=as_json)


@command.command()
@json_option
def schema(as_json: bool) -> None:
    """Every key a recipe may have, with type, default and meaning (--json: as JSON Schema)."""
    from agentfly_core.recipes.describe import describe_schema
    from agentfly_core.recipes.schema import Recipe

    if as_json:
        show_json(Recipe.model_json_schema())
    else:
        show(describe_schema(), as_json=False, columns=["key", "type", "default", "meaning"])


@command.command(name="show")
@click.argument("recipe")
@click.argument("overrides", nargs=-1)
@json_option
def show_recipe(recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check RECIPE (a file, or ENTRY:FILE of an installed package) with key=value OVERRIDES; print it as resolved."""
    import yaml

    from agentfly_core.recipes.load import load_recipe

    resolved: dict[str, Any] = load_recipe(recipe, overrides, plugins=load_plugins()).resolved()
    if as_json:
        show_json(resolved)
    else:
        click.echo(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True), nl=False)
