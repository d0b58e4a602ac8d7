"""``agentfly sft``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentfly_core.cli.output import json_option, load_plugins, show_json

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder


@click.command()
@click.argument("recipe")
@click.argument("overrides", nargs=-1)
@click.option("--output", metavar="DIR", help="Copy the trained model to this folder.")
@json_option
def command(recipe: str, overrides: tuple[str, ...], output: str | None, as_json: bool) -> None:
    """Train RECIPE's model on its conversations (`sft`), with the same template and masks as in training by RL."""
    from agentfly_core.cli.stopping import EXIT_CODE
    from agentfly_core.recipes.load import load_recipe
    from agentfly_core.runs import RunFolder
    from agentfly_core.types import UsageError

    loaded = load_recipe(recipe, overrides, plugins=load_plugins())
    if output is not None and Path(output).exists() and (not Path(output).is_dir() or any(Path(output).iterdir())):
        raise UsageError(f"--output {output} exists and is not empty; name a new folder")
    loaded.check_sft()
    root = loaded.recipe.run.root
    folder = RunFolder.create(root, f"{loaded.recipe.name}-sft", loaded.resolved(), plugins=loaded.plugins)
    click.echo(f"run folder: {folder.path}", err=True)
    model = train(loaded, folder)
    if output is not None:
        model = _copy(model, Path(output))
    status = folder.status()
    if as_json:
        show_json({"run": str(folder.path), "state": status.state, "step": status.step, "model": str(model)})
    else:
        click.echo(f"model: {model}")
    if status.state == "stopped":
        assert loaded.recipe.sft is not None
        click.echo(f"stopped after {status.step} of {loaded.recipe.sft.steps} steps", err=True)
        raise SystemExit(EXIT_CODE)


def train(loaded: LoadedRecipe, folder: RunFolder) -> Path:
    """Train with progress and signals handled; the folder of the model."""
    from agentfly_core.cli.progress import SFT_COLUMNS, progress
    from agentfly_core.cli.stopping import stop_on_signal
    from agentfly_core.learners.sft import run_sft

    assert loaded.recipe.sft is not None
    message = "stopping after this step, the model is written; once more to stop at once (no model is written)"
    with (
        folder.recording_failure(),
        stop_on_signal(lambda: _stopped_at_once(folder), message) as stop,
        progress(loaded.plugins, loaded.recipe.sft.steps, columns=SFT_COLUMNS),
    ):
        return run_sft(loaded, folder, stop=stop)


def _stopped_at_once(folder: RunFolder) -> str:
    folder.update_status("stopped")
    return "stopped at once; no model was written"


def _copy(model: Path, output: Path) -> Path:
    import shutil

    from agentfly_core.runs.files import replace_folder

    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)

    def write(folder: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)

    replace_folder(output, write)
    return output
