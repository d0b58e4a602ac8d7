"""The command line. Each command is ``command`` in the module ``cli/<name>.py``, imported only when it is used."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

import click

from agentfly_core import __version__
from agentfly_core.types.errors import AgentFlyError, UsageError, nearest

GROUP = "agentfly.commands"

COMMANDS: dict[str, str] = {
    "env": "List environments, and play one in the terminal.",
    "eval": "Evaluate a recipe's model on held-out tasks.",
    "plugins": "List, examine and create plugins.",
    "recipe": "Show a recipe as resolved, or the schema of recipes.",
    "resources": "Show what is leased, and end what crashed runs left.",
    "rewards": "List rewards.",
    "run": "Let an agent answer a question or work on a task.",
    "runs": "List and show finished and running runs.",
    "sft": "Train on conversations.",
    "templates": "List, check and render chat templates.",
    "tools": "List and call tools.",
    "train": "Train an agent by reinforcement learning.",
}
"""The core's own commands with their help, so that ``agentfly --help`` imports none of them."""


class Failure(click.ClickException):
    """An ``AgentFlyError`` on its way to the terminal."""

    def __init__(self, error: AgentFlyError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code  # type: ignore[misc]  # click types it as of the class

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class LazyGroup(click.Group):
    """The top-level group: names come from ``COMMANDS`` and package metadata, code is loaded on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *plugin_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
            return command
        entries = plugin_commands().get(cmd_name, [])
        return load_command(cmd_name, entries) if entries else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in known:
            guess = nearest(args[0], known)
            ctx.fail(
                f"no such command {args[0]!r}" + (f"; did you mean {' or '.join(map(repr, guess))}?" if guess else "")
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [*COMMANDS.items()]
        for name, entries in plugin_commands().items():
            if name not in COMMANDS:
                rows.append((name, f"(from {' and '.join(map(_distribution, entries))})"))
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AgentFlyError as error:
            raise Failure(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


def plugin_commands() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Commands of installed plugins, from package metadata alone."""
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def load_command(name: str, entries: list[importlib.metadata.EntryPoint]) -> click.Command:
    """The command that one plugin offers under this name.

    Raises:
        UsageError: two plugins do, or it cannot be imported, or is no click command.
    """
    if len(entries) > 1:
        raise UsageError(f"the command {name!r} is offered by {' and by '.join(map(_distribution, entries))}")
    entry = entries[0]
    try:
        command = entry.load()
    except Exception as error:
        raise UsageError(
            f"the command {name!r} of {_distribution(entry)} cannot be loaded from {entry.value!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(command, click.Command):
        raise UsageError(f"the command {name!r} of {_distribution(entry)} is no click command but {command!r:.100}")
    return command


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="agentfly %(version)s")
def cli() -> None:
    """Train language-model agents with reinforcement learning."""


def main() -> None:
    """The console script ``agentfly``. Exit code 2: wrong input, said in one line on stderr."""
    cli(prog_name="agentfly")
