"""``agentfly train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import json_option, load_plugins, show, show_json

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder
    from agentfly_core.types import Learner


@click.command()
@click.argument("recipe", required=False)
@click.argument("overrides", nargs=-1)
@click.option(
    "--resume",
    "resumed",
    metavar="RUN",
    help="Go on with this run folder (from its latest checkpoint, or else anew); RECIPE may then be left out.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Check everything, show what training would do, and stop.")
@json_option
def command(recipe: str | None, overrides: tuple[str, ...], resumed: str | None, dry: bool, as_json: bool) -> None:
    """Train the agent of RECIPE (a file, or ENTRY:FILE of an installed package) with key=value OVERRIDES.

    The first Ctrl-C ends the run with a checkpoint after the step in hand, the second at once.
    """
    from agentfly_core.cli.stopping import EXIT_CODE
    from agentfly_core.cli.targets import load_for_run
    from agentfly_core.runs import RunFolder

    loaded, folder = load_for_run(recipe, overrides, resumed, load_plugins())
    if folder is not None:
        _check_resumable(loaded, folder)
    learner = loaded.check_training()
    if dry:
        from agentfly_core.cli.dry_run import show_plan

        return show_plan(loaded, learner, as_json=as_json)
    if (check_installed := getattr(learner, "check_installed", None)) is not None:
        check_installed(loaded)
    run = loaded.recipe.run
    if folder is not None:
        folder.update_status("running")  # from here on nobody else can
    folder = folder or RunFolder.create(run.root, loaded.recipe.name, loaded.resolved(), plugins=loaded.plugins)
    click.echo(f"run folder: {folder.path}", err=True)
    train(loaded, folder, learner, resume=resumed is not None)
    _report(folder, as_json)
    status = folder.status()
    if status.state == "stopped":
        trained = f"stopped after step {status.step}" if status.step else "stopped before the first step was trained"
        click.echo(f"{trained}; go on with: agentfly train --resume {_short(folder.path)}", err=True)
        raise SystemExit(EXIT_CODE)


def train(loaded: LoadedRecipe, folder: RunFolder, learner: Learner, *, resume: bool) -> None:
    """Train with progress and signals handled. How it ended stands in the folder's status."""
    from agentfly_core.cli.progress import progress
    from agentfly_core.cli.stopping import stop_on_signal

    latest = folder.checkpoints.latest() if resume else None
    message = "stopping after this step; once more to stop at once (what came after the last checkpoint is lost)"
    with (
        folder.recording_failure(),
        stop_on_signal(lambda: _stopped_at_once(folder), message) as stop,
        progress(loaded.plugins, loaded.recipe.train.steps, latest[0] if latest else 0),
    ):
        learner.train(loaded, folder, resume=resume, stop=stop)
    _check_scored(folder)


def _check_scored(folder: RunFolder) -> None:
    """A run in which no chain ever had a score trained nothing, however smoothly it went.

    Raises:
        UsageError: this is one.
    """
    from agentfly_core.types import UsageError

    unscored = [row["chains/unscored"] for row in folder.metrics.read() if "chains/unscored" in row]
    if unscored and min(unscored) == 1.0:
        text = "not one chain had a score, so nothing was learned; the lines above and the trajectories say why"
        folder.update_status("failed", error=text)
        raise UsageError(f"{folder.path}: {text}")


def _stopped_at_once(folder: RunFolder) -> str:
    """Mark the run as stopped; what is lost, and how to go on."""
    folder.update_status("stopped")
    again, latest = f"agentfly train --resume {_short(folder.path)}", folder.checkpoints.latest()
    if latest is None:
        return f"stopped at once, before the first checkpoint; begin anew with: {again}"
    return f"stopped at once; what came after step {latest[0]} is lost; go on from there with: {again}"


def _check_resumable(loaded: LoadedRecipe, folder: RunFolder) -> None:
    """A resumed run must be the one that was begun; how long it runs and what it reports may change."""
    from agentfly_core.recipes.reading import read_recipe_file
    from agentfly_core.types import UsageError

    before, now = _flat(read_recipe_file(folder.recipe_path)), _flat(loaded.resolved())
    free = ("train.steps", "evaluation.", "run.")
    changed = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k) and not k.startswith(free))
    if changed:
        raise UsageError(
            f"{folder.path} was begun with another recipe: {', '.join(changed)} changed. Start a new run, or leave "
            "RECIPE out to go on with the run's own"
        )
    status, latest = folder.status(), folder.checkpoints.latest()
    if status.state == "running" and not folder.stale():
        raise folder.taken()
    # Killed between its last checkpoint and its final weights, a run has these yet to write.
    if latest and latest[0] >= loaded.recipe.train.steps and status.state == "finished":
        raise UsageError(f"{folder.path} has all its {latest[0]} steps; set train.steps=N higher to go on")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix.rstrip("."): value}
    return {k: v for name, inner in value.items() for k, v in _flat(inner, f"{prefix}{name}.").items()}


def _report(folder: RunFolder, as_json: bool) -> None:
    from agentfly_core.cli.tables import evaluations

    rows = evaluations(folder)
    if as_json:
        status = folder.status()
        show_json({"run": str(folder.path), "state": status.state, "step": status.step, "evaluation": rows})
        return
    if rows:
        show(rows, as_json=False)
    click.echo(f"run folder: {_short(folder.path)}")


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
