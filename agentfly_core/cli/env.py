"""``agentfly env``."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import json_option, load_plugins, plugin_option, printable, show
from agentfly_core.types import Observation, StepResult, Task, UsageError, is_content, text_of

if TYPE_CHECKING:
    from agentfly_core.plugins import Plugins
    from agentfly_core.types import Environment

SHOWN = 30
"""Possible actions that are listed without being asked for."""


@click.group()
def command() -> None:
    """List environments, and play one in the terminal."""


@command.command("list")
@plugin_option
@json_option
def list_environments(plugin: tuple[str, ...], as_json: bool) -> None:
    """List every environment by name, with its options."""
    rows: list[dict[str, Any]] = []
    for registration in load_plugins(plugin).registry("environments"):
        row = {"name": registration.name, "plugin": registration.plugin, "distribution": registration.distribution}
        try:
            described = _described(registration.resolve())
        except UsageError as error:  # one broken environment does not hide the others
            rows.append({**row, "error": str(error), "description": f"error: {error}"})
        else:
            rows.append({**row, "description": registration.summary, **described})
    show(rows, as_json=as_json, columns=("name", "options", "description", "plugin"))


def _described(factory: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters.values()
    options = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    return {"options": options, "lists_tasks": hasattr(factory, "tasks")}


@command.command("play")
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--split", type=click.Choice(["train", "eval"]), default="eval", show_default=True)
@click.option("--task", "number", type=click.IntRange(min=0), default=0, show_default=True, help="Which of its tasks.")
@click.option("--field", "fields", multiple=True, metavar="KEY=VALUE", help="Of a task of your own (repeatable).")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the tasks and the episode.")
@plugin_option
def play(
    name: str,
    options: tuple[str, ...],
    split: str,
    number: int,
    fields: tuple[str, ...],
    seed: int,
    plugin: tuple[str, ...],
) -> None:
    """Play the environment NAME yourself, with options as in a recipe: one action a line.

    A line "/actions" lists all possible actions and "/quit" (or the end of the input) ends the game.
    """
    from agentfly_core.recipes.calling import build
    from agentfly_core.recipes.reading import apply_overrides

    plugins = load_plugins(plugin)
    given: dict[str, Any] = {}
    apply_overrides(given, options)
    own: dict[str, Any] = {}
    apply_overrides(own, fields)
    task = Task("own", fields=own) if own else _task(plugins, name, split, number, seed)
    world = build(f"environment {name!r}", plugins.registry("environments").get(name), given)
    loop = asyncio.new_event_loop()  # not asyncio.run, which would catch Ctrl-C while a line is awaited
    try:
        _play(world, task, seed, loop.run_until_complete)
    finally:
        loop.run_until_complete(world.close())
        loop.close()


def _task(plugins: Plugins, name: str, split: str, number: int, seed: int) -> Task:
    """The environment's own task of this number, or an empty one where it lists none."""
    from agentfly_core.recipes.data import call_source, to_task
    from agentfly_core.recipes.schema import DataSection

    factory = plugins.registry("environments").get(name)
    if not hasattr(factory, "tasks"):
        return Task("task")
    rows = call_source(f"the tasks of environment {name!r}", factory.tasks, {}, split=split, seed=seed)  # type: ignore[arg-type]
    row = rows.first(number + 1)[number:]
    if not row:
        raise UsageError(f"--task {number}: environment {name!r} has no such task for {split}")
    return to_task(row[0], DataSection(), needs_prompt=False)


def _play(world: Environment, task: Task, seed: int, run: Callable[[Any], Any]) -> None:
    """One episode. ``run`` awaits what the environment returns."""
    total, steps = 0.0, 0
    click.echo(_shown(run(world.reset(task, seed)), Observation, "reset"))
    while (action := _ask(run(_possible(world)))) is not None:
        result = run(world.step(action))
        shown = _shown(result, StepResult, "step")
        total, steps = total + result.reward, steps + 1
        click.echo(shown)
        if result.reward:
            click.echo(f"(reward {result.reward:g}, {total:g} in all)")
        if result.done:
            how = "over" if result.terminated else "cut off"
            click.echo(f"The episode is {how} after {_steps(steps)}: reward {total:g}")
            return
    click.echo(f"Left after {_steps(steps)}: reward {total:g}")


def _shown(result: Any, kind: type[Observation] | type[StepResult], method: str) -> str:
    """The text of what an environment returned.

    Raises:
        UsageError: it returned something else, on which chains would end with ``environment_error``.
    """
    content = getattr(result, "content" if kind is Observation else "observation", None)
    if not isinstance(result, kind) or not is_content(content):
        raise UsageError(
            f"{method} must return a {kind.__name__} of text (or text and image parts), got {result!r:.200}"
        )
    return printable(text_of(content))


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _ask(possible: Sequence[str]) -> str | None:
    """The next action; None to leave."""
    if 0 < len(possible) <= SHOWN:
        click.echo(f"Possible actions: {', '.join(map(printable, possible))}")
    elif possible:
        click.echo(f"({len(possible)} possible actions: /actions lists them)")
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            click.echo()
            return None
        if not sys.stdin.isatty():
            click.echo(printable(text))  # a terminal shows what is typed itself
        if text == "/quit":
            return None
        if text == "/actions":
            click.echo("\n".join(map(printable, possible)) or "The environment does not say.")
        elif text:
            return text


async def _possible(world: Environment) -> list[str]:
    if not hasattr(world, "admissible_actions"):
        return []
    found = world.admissible_actions()
    return list(await found if inspect.isawaitable(found) else found)
