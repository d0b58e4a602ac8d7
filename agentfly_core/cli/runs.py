"""``agentfly runs``: what ran here, and what still does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import json_option, root_option, show, show_json

if TYPE_CHECKING:
    from agentfly_core.runs import RunFolder


@click.group()
def command() -> None:
    """List and show finished and running runs."""


@command.command(name="list")
@root_option
@json_option
def list_runs(root: str, as_json: bool) -> None:
    """All runs in a folder, the newest last."""
    from agentfly_core.runs import RunFolder
    from agentfly_core.types import UsageError

    rows = []
    for path in Path(root).glob("*/status.json"):
        try:
            rows.append(_row(RunFolder.open(path.parent)))
        except UsageError as error:  # one damaged run must not hide the others
            rows.append({"run": path.parent.name, "state": "damaged", "started": "", "error": str(error)})
    rows.sort(key=lambda row: str(row["started"]))
    show(rows, as_json=as_json, columns=["run", "state", "step", "started", "updated", "reward", "success"])


@command.command(name="show")
@click.argument("run", required=False)
@root_option
@json_option
def show_run(run: str | None, root: str, as_json: bool) -> None:
    """One run (by default the newest): state, evaluations, last metrics, where its files are."""
    from agentfly_core.cli.tables import evaluations
    from agentfly_core.cli.targets import find_run
    from agentfly_core.runs import RunFolder
    from agentfly_core.types import UsageError

    if run is None:
        newest = max(Path(root).glob("*/status.json"), key=lambda p: p.stat().st_mtime, default=None)
        if newest is None:
            raise UsageError(f"there are no runs in {root}/ (--root names another folder)")
        folder = RunFolder.open(newest.parent)
    else:
        folder = find_run(run, root)
    metrics = folder.metrics.read()
    details = {
        **_row(folder),
        "path": str(folder.path),
        "error": folder.status().error,
        "evaluation": evaluations(folder),
        "checkpoints": [step for step, _ in folder.checkpoints.all()],
        "metrics": _last_training(metrics),
    }
    if as_json:
        show_json(details)
        return
    tables = ("evaluation", "metrics")
    show([{"what": k, "value": v} for k, v in details.items() if k not in tables and v != ""], as_json=False)
    if details["evaluation"]:
        click.echo()
        show(details["evaluation"], as_json=False)
    if details["metrics"]:
        click.echo()
        show([{"metric": k, "last": v} for k, v in details["metrics"].items()], as_json=False)


def _row(folder: RunFolder) -> dict[str, Any]:
    status = folder.status()
    last = _last_training(folder.metrics.read())
    return {
        "run": folder.path.name,
        "state": f"{status.state} (stale)" if folder.stale() else status.state,
        "step": status.step,
        "started": _time(status.started),
        "updated": _time(status.updated),
        "reward": last.get("reward/mean"),
        "success": last.get("success"),
    }


def _last_training(metrics: list[dict[str, float]]) -> dict[str, float]:
    return next((line for line in reversed(metrics) if "reward/mean" in line), {})


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
