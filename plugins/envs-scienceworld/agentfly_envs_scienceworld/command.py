"""``agentfly scienceworld``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from agentfly_core.runs.files import replacing
from agentfly_core.types import UsageError
from agentfly_envs_scienceworld.catalogue import SUBSETS, TASKS, names, variations


@click.group()
def command() -> None:
    """ScienceWorld: list its tasks, write demonstrations."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tasks(as_json: bool) -> None:
    """List the tasks, with the number of variations in each subset."""
    rows = [
        {"task": name, "number": number, **{subset: len(variations(name, subset)) for subset in SUBSETS}}
        for name, (number, _) in TASKS.items()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['number']:>5}  {row['task']:<50}" + "".join(f"{row[s]:>5} {s}" for s in SUBSETS))


@command.command()
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="A .jsonl file.")
@click.option("--task", "chosen", multiple=True, metavar="NAME", help="Only this task, by name or number (repeatable).")
@click.option("--subset", type=click.Choice(SUBSETS), default="train", show_default=True)
@click.option("--per-task", type=click.IntRange(min=1), default=None, help="At most so many variations of a task.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="At most so many variations in all.")
@click.option("--form", type=click.Choice(["text", "tools"]), default="tools", show_default=True)
@click.option("--simplification", "simplifications", multiple=True, default=("easy",), show_default=True)
def demos(
    output: Path,
    chosen: tuple[str, ...],
    subset: str,
    per_task: int | None,
    limit: int | None,
    form: str,
    simplifications: tuple[str, ...],
) -> None:
    """Write conversations in which gold paths solve the tasks, as `agentfly sft` takes them (sft.data)."""
    from agentfly_envs_scienceworld.demonstrations import demonstrations
    from agentfly_envs_scienceworld.tasks import scienceworld_tasks

    if output.suffix != ".jsonl":
        raise UsageError(f"--output {output}: name a .jsonl file")
    count = len(scienceworld_tasks("train", subset=subset, tasks=names(chosen), limit_per_task=per_task))
    rows = demonstrations(
        form=form,  # type: ignore[arg-type]  # click has checked it
        tasks=chosen,
        subset=subset,
        limit_per_task=per_task,
        simplifications=simplifications,
        limit=limit,
    )
    written = 0
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8") as file:
        with click.progressbar(rows, length=min(count, limit or count)) as bar:
            for row in bar:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                written += 1
        if not written:
            raise UsageError("no gold path solved its task")
    click.echo(f"{output}: {written} conversations")
