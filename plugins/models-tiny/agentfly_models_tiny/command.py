"""``agentfly tiny``."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def command() -> None:
    """The embedded tiny model."""


@command.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("tiny-model"), show_default=True, metavar="DIR")
@click.option("--seed", type=int, default=None, help="Of weights and demonstrations; that of the packaged model.")
def build(output: Path, seed: int | None) -> None:
    """Make the model anew: tokenizer, random weights, warm start from demonstrations (about two minutes)."""
    from agentfly_models_tiny.build import SEED, build_model

    build_model(output, seed=SEED if seed is None else seed, say=lambda text: click.echo(text, err=True))
    click.echo(output)
