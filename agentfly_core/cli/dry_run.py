"""``agentfly train --dry-run``: what training would do, shown and not done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import show, show_json

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.types import Learner


def show_plan(loaded: LoadedRecipe, learner: Learner, *, as_json: bool) -> None:
    """Print what the learner says it would do; one that says nothing has at least checked the recipe."""
    describe = getattr(learner, "dry_run", None)
    plan = {"recipe": loaded.recipe.name, "learner": loaded.recipe.learner.name}
    plan |= describe(loaded) if describe is not None else {}
    if as_json:
        show_json(plan)
        return
    for name, value in plan.items():
        _show(name.replace("_", " "), value)
    click.echo("\nnothing was started: leave --dry-run out to train")


def _show(name: str, value: Any) -> None:
    """A table for a list of mappings, indented lines for a mapping or a list, else one line."""
    if isinstance(value, Mapping):
        click.echo(f"\n{name}")
        for inner, part in value.items():
            if isinstance(part, list):
                _show(inner.replace("_", " "), part)
            else:
                click.echo(f"  {inner.replace('_', ' ')}: {part}")
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        click.echo(f"\n{name}")
        show([{key: _exact(cell) for key, cell in row.items()} for row in value], as_json=False)
    elif isinstance(value, list):
        if value:
            click.echo(f"\n{name}")
        for line in value:
            click.echo(f"  - {line}")
    else:
        click.echo(f"{name}: {value}")


def _exact(cell: Any) -> str | None:
    """Numbers as they are: tables round them otherwise."""
    return cell if cell is None else " ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell)
