"""What ``RECIPE [key=value ...]`` and ``--run RUN`` mean on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.load import LoadedRecipe, load_recipe
from agentfly_core.runs import RunFolder
from agentfly_core.runs.folder import plain_name, recipe_of
from agentfly_core.types import UnknownName, UsageError


def load_for_run(
    recipe: str | None, overrides: Sequence[str], run: str | None, plugins: Plugins
) -> tuple[LoadedRecipe, RunFolder | None]:
    """The recipe, and the run folder if one is named. Without RECIPE it is the run's own.

    Raises:
        UsageError: neither is given, or either is wrong.
    """
    if recipe is not None and "=" in recipe and not Path(recipe).exists():
        overrides, recipe = (recipe, *overrides), None
    folder = None if run is None else find_run(run)
    if recipe is not None:
        return load_recipe(recipe, overrides, plugins=plugins), folder
    if folder is None:
        raise click.UsageError("name a RECIPE: a .yaml or .toml file, or ENTRY:FILE of an installed package")
    return load_recipe(folder.recipe_path, overrides, plugins=plugins), folder


def find_run(name: str, root: str | Path = "runs") -> RunFolder:
    """A run inside ``root`` by its path, its name, or what only its name begins with.

    The whole name of a recipe means the newest of that recipe's runs: ``trains``, but not ``trains-sft``.

    Raises:
        UsageError: there is none, or there are several.
    """
    if Path(name).is_dir():
        return RunFolder.open(name)
    known = {path.parent.name: path.parent for path in Path(root).glob("*/status.json")}
    if name in known:
        return RunFolder.open(known[name])
    if own := [path for run, path in known.items() if recipe_of(run) == plain_name(name)]:
        return RunFolder.open(max(own, key=_age))
    found = [path for run, path in known.items() if run.startswith(name)]
    if not found:
        raise UnknownName("run", name, known, hint=f"(looked in {root}/)")
    if len(found) > 1:
        names = " or ".join(sorted(path.name for path in found))
        raise UsageError(
            f"run {name!r} may be {names}: write more of the name, or the whole name before the date for the newest"
        )
    return RunFolder.open(found[0])


def _age(run: Path) -> tuple[str, int]:
    """Sorts the runs of one recipe, the newest last."""
    recipe = RunFolder(run).recipe_path
    return run.name.rpartition("-")[0], recipe.stat().st_mtime_ns if recipe.exists() else 0
