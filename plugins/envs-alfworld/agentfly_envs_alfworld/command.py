"""``agentfly alfworld``."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from agentfly_core.types import Task, UsageError

RELEASE_URL = "https://github.com/alfworld/alfworld/releases/download"
ARCHIVES = {
    "games": f"{RELEASE_URL}/0.4.0/json_2.1.2_tw-pddl.zip",
    "trajectories": f"{RELEASE_URL}/0.2.2/json_2.1.1_json.zip",
    "problems": f"{RELEASE_URL}/0.2.2/json_2.1.1_pddl.zip",
}
"""Of the official release. AgentFly reads the games alone; ALFWorld's own loader wants the others beside them."""


@click.group()
def command() -> None:
    """ALFWorld: get its games, prepare them, watch one."""


@command.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="ALFWORLD_DATA", metavar="DIR", help="Where to.")
@click.option("--all", "everything", is_flag=True, help="Also what only ALFWorld's own loader reads.")
@click.option("--url", default=ARCHIVES["games"], show_default=True, help="Of the games' archive: a mirror.")
@click.option("--sha256", default=None, metavar="HEX", help="What the games' archive must be.")
@click.option("--keep", is_flag=True, help="Keep the archives after unpacking.")
def download(data: Path | None, everything: bool, url: str, sha256: str | None, keep: bool) -> None:
    """Download the official games. Run it again after an interruption: it goes on where it stopped."""
    from agentfly_envs_alfworld.download import unpack
    from agentfly_envs_alfworld.games import RELEASE, SPLITS, default_folder, official_games

    folder = (data or default_folder()).expanduser()
    wanted = {**(ARCHIVES if everything else {}), "games": url}
    for name, address in wanted.items():
        archive = folder / f"{name}.zip"
        digest = _fetch(address, archive, sha256 if name == "games" else None)
        click.echo(f"{name}: {archive.stat().st_size} bytes, sha256 {digest}", err=True)
        click.echo(f"{archive.name}: {unpack(archive, folder)} files", err=True)
        if name == "games" and not (folder / RELEASE).is_dir():
            raise UsageError(f"there are no games in {archive} (from {address}): it has no folder {RELEASE!r}")
        if not keep:
            archive.unlink()
    official_games.cache_clear()
    for split in SPLITS:
        if (folder / RELEASE / split).is_dir():
            click.echo(f"{split}: {len(official_games(folder, split))} games")
    if data is None:
        return
    click.echo(f"Set ALFWORLD_DATA={folder} to play them.", err=True)


@command.command()
@click.option("--subset", default="train", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Only so many games.")
@click.option("--generated", is_flag=True, help="Generated games (with a limit), even where official ones are.")
def prepare(subset: str, limit: int | None, generated: bool) -> None:
    """Translate games ahead, so that a run starts them 10 times as fast (a run does it as it goes)."""
    from agentfly_envs_alfworld.games import read_game
    from agentfly_envs_alfworld.generation import generated_game
    from agentfly_envs_alfworld.tasks import alfworld_tasks
    from agentfly_envs_alfworld.translation import cache_folder, translate

    tasks = alfworld_tasks("train", games="generated" if generated else "auto", subset=subset)
    if not isinstance(tasks, list) and limit is None:
        raise UsageError("generated games have no end: say how many with --limit")
    if cache_folder() is None:
        raise UsageError("translations cannot be kept: AGENTFLY_ALFWORLD_CACHE is 'off' or cannot be written")
    chosen = list(itertools.islice(tasks, limit))
    with click.progressbar(chosen, label="games") as bar:
        for task in bar:
            name = task.fields["game"]
            game = generated_game(name) if name.startswith("generated:") else read_game(Path(name))
            translate(game.domain, game.problem)
    click.echo(f"{len(chosen)} games in {cache_folder()}")


@command.command()
@click.option("--subset", default="valid_seen", show_default=True)
@click.option("--number", type=click.IntRange(min=0), default=0, show_default=True, help="Which game of the subset.")
@click.option("--type", "kind", default=None, metavar="TYPE", help="Only games of this task type.")
def watch(subset: str, number: int, kind: str | None) -> None:
    """Show a game as its walkthrough wins it."""
    import asyncio

    from agentfly_envs_alfworld.tasks import alfworld_tasks

    tasks = alfworld_tasks("eval", subset=subset, task_types=(kind,) if kind else ())
    task = next(itertools.islice(tasks, number, None), None)
    if task is None:
        raise UsageError(f"--number {number}: there are not so many games")
    asyncio.run(_watch(task))


async def _watch(task: Task) -> None:
    from agentfly_envs_alfworld.environment import ALFWorld

    world = ALFWorld()
    try:
        click.echo((await world.reset(task, 0)).content)
        for action in world.walkthrough():
            result = await world.step(action)
            click.echo(f"\n> {action}\n{result.observation}")
        click.echo("\nWon." if result.terminated else "\nNot won.")
    finally:
        await world.close()


def _fetch(url: str, target: Path, sha256: str | None) -> str:
    from agentfly_envs_alfworld.download import fetch

    click.echo(f"{target} is there already" if target.exists() else f"{url} to {target}", err=True)
    shown = [-1]

    def progress(done: int, total: int | None) -> None:
        share = done * 20 // total if total else done >> 26
        if share != shown[0]:
            shown[0] = share
            click.echo(f"  {done >> 20} MiB" + (f" of {total >> 20}" if total else ""), err=True)

    return fetch(url, target, sha256=sha256, progress=progress, notice=lambda text: click.echo(f"  {text}", err=True))
