"""``agentfly index``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from agentfly_core.cli.output import json_option, show, show_json


@click.group()
def command() -> None:
    """Build and search indexes of local corpora."""


@command.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="[default: CORPUS with .index]")
@click.option("--kind", type=click.Choice(["bm25", "dense"]), default="bm25", show_default=True)
@click.option("--model", metavar="MODEL", help="Of dense: a sentence-transformers model, a folder or a hub id.")
@click.option(
    "--title-weight",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Of bm25: added weight of titles.",
)
@click.option("--id-column", default="id", show_default=True)
@click.option("--title-column", default="title", show_default=True)
@click.option("--text-column", default="text", show_default=True)
@click.option("--url-column", default="url", show_default=True)
@json_option
def build(
    corpus: Path,
    output: Path | None,
    kind: str,
    model: str | None,
    title_weight: float,
    id_column: str,
    title_column: str,
    text_column: str,
    url_column: str,
    as_json: bool,
) -> None:
    """Make the index of CORPUS: a .jsonl, .txt or .md file (there a blank line ends a passage), or a folder of them."""
    from agentfly_tools_web.retrieval import Columns, build_index
    from agentfly_tools_web.retrieval.build import DEFAULT_MODEL

    target = output or Path(f"{os.path.abspath(corpus.expanduser())}.index")  # of "." beside the folder, not in it
    with _counter() as count:
        index = build_index(
            corpus,
            target,
            kind="dense" if kind == "dense" else "bm25",
            columns=Columns(id_column, title_column, text_column, url_column),
            title_weight=title_weight,
            model=model or DEFAULT_MODEL,
            progress=count,
        )
    if as_json:
        show_json({"folder": str(index.folder), **index.manifest})
    else:
        click.echo(f"{index.folder}: {len(index):,} passages")


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Passages to show.")
@json_option
def search(folder: Path, query: str, k: int, as_json: bool) -> None:
    """Show the best passages of the index in FOLDER for QUERY."""
    from agentfly_tools_web.retrieval import open_index

    rows = [asdict(passage) for passage in open_index(folder).search(query, k)]
    show(rows, as_json=as_json, columns=("score", "id", "title", "text"))


@contextlib.contextmanager
def _counter() -> Iterator[Callable[[int], None]]:
    """Say on stderr how far the build is: one line that changes on a terminal, a line now and then elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: click.echo(f"{done:,} passages", err=True) if done % 100_000 == 0 else None
        return
    with console.status("reading") as status:
        yield lambda done: status.update(f"{done:,} passages")
