"""``agentfly eval``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentfly_core.cli.output import json_option, load_plugins, show, show_json

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe


@click.command()
@click.argument("recipe", required=False)
@click.argument("overrides", nargs=-1)
@click.option("--run", "run", metavar="RUN", help="With the weights of this run folder; RECIPE may then be left out.")
@click.option("--model", metavar="PATH", help="With the weights in this model folder.")
@json_option
def command(recipe: str | None, overrides: tuple[str, ...], run: str | None, model: str | None, as_json: bool) -> None:
    """Evaluate RECIPE's model, or a trained one, on held-out tasks."""
    from agentfly_core.cli.targets import load_for_run
    from agentfly_core.types import UsageError

    if run and model:
        raise UsageError("--run and --model exclude each other")
    loaded, folder = load_for_run(recipe, overrides, run, load_plugins())
    weights = model or (folder and str(folder.weights()))
    if weights:
        loaded = loaded.with_model(weights)
    rows = evaluate(loaded)
    if as_json:
        show_json({"model": loaded.model_path, "evaluation": rows})
    else:
        show(rows, as_json=False)


def evaluate(loaded: LoadedRecipe) -> list[dict[str, object]]:
    """One row for each mode of the recipe's evaluation."""
    import asyncio

    recipe = loaded.recipe
    tasks = loaded.eval_tasks()  # what is wrong with the data is said before anything heavy is imported

    from agentfly_core.cli.progress import progress
    from agentfly_core.cli.tables import evaluation_rows
    from agentfly_core.learners.evaluate import evaluate as run_evaluation

    backend = loaded.backend()
    try:
        with progress(loaded.plugins, 0), loaded.engine(backend) as engine:
            metrics = run_evaluation(engine, tasks, modes=recipe.evaluation.modes, recipe=recipe)
    finally:
        asyncio.run(backend.close())
    return evaluation_rows(metrics, tasks=len(tasks))
