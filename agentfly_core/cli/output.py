"""What commands share: tables that are also JSON, and plugins loaded with their failures said on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from agentfly_core.types.errors import UsageError

if TYPE_CHECKING:
    from agentfly_core.plugins import Plugins

STDOUT = "agentfly_core.stdout"
"""Where a command that prints JSON prints it."""

PIPE_WIDTH = 200
"""Columns of a table that is not printed to a terminal."""

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add ``--json`` to a command, passed on as ``as_json``: whatever else is printed then goes to stderr."""

    def alone(context: click.Context, _: click.Parameter, chosen: bool) -> bool:
        if chosen:
            context.meta[STDOUT] = sys.stdout
            context.with_resource(contextlib.redirect_stdout(sys.stderr))
        return chosen

    return click.option("--json", "as_json", is_flag=True, callback=alone, help="Print JSON.")(function)


def plugin_option(function: F) -> F:
    """Add ``--plugin FILE``, repeatable, passed on as ``plugin``."""
    text = "Also load this Python file or module (repeatable)."
    return click.option("--plugin", "plugin", multiple=True, metavar="FILE", help=text)(function)


def root_option(function: F) -> F:
    """Add ``--root FOLDER``: where the run folders are. The default one comes with the first run; one that is named
    must be there."""

    def existing(context: click.Context, option: click.Parameter, root: str) -> str:
        assert option.name is not None
        given = context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
        if given and not Path(root).is_dir():
            raise UsageError(f"--root: there is no folder {root}")
        return root

    text = "Folder that holds the run folders."
    return click.option("--root", default="runs", show_default=True, callback=existing, help=text)(function)


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Print rows as a table of ``columns`` (all of the first row's if None), or whole as a JSON array."""
    if as_json:
        return show_json(list(rows))
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(columns or (rows[0] if rows else ()))
    table = Table(*(c.replace("_", " ") for c in columns), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)


def show_json(value: Any) -> None:
    """Print any value as JSON: a number that is not finite as null, what else JSON does not know as its text."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    context = click.get_current_context(silent=True)
    click.echo(text, file=context.meta.get(STDOUT) if context else None)


def load_plugins(paths: Sequence[str] = ()) -> Plugins:
    """All plugins, and users' own files; each plugin that failed is one line on stderr.

    Hand them to ``load_recipe(..., plugins=...)``.

    Raises:
        UsageError: one of ``paths`` cannot be loaded.
    """
    from agentfly_core.plugins import Plugins

    plugins = Plugins.load(warn=False)
    for record in plugins.records:
        if record.state in ("failed", "incompatible"):
            text = f"plugin {record.name!r} ({record.distribution}) {record.state}: {record.error}"
            click.echo(f"warning: {text} (agentfly plugins list -v)", err=True)
    for path in paths:
        plugins.load_path(path)
    return plugins


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value))
    return str(value)


def printable(text: str) -> str:
    """The text without control characters that could drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text.strip())
