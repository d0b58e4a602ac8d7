"""``agentfly run``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import json_option, load_plugins, printable, show_json
from agentfly_core.hookspecs import hookimpl
from agentfly_core.types import text_of

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.types import CallError, Split, Task, ToolCall, Trajectory, Turn


@click.command()
@click.argument("recipe")
@click.argument("question", required=False)
@click.argument("overrides", nargs=-1)
@click.option("--run", "run", metavar="RUN", help="With the weights of this run folder.")
@click.option("--chains", type=click.IntRange(min=1), default=1, show_default=True, help="Attempts at the question.")
@click.option(
    "--temperature", type=click.FloatRange(min=0), help="0 takes the likeliest token: the default for a single chain."
)
@json_option
def command(
    recipe: str,
    question: str | None,
    overrides: tuple[str, ...],
    run: str | None,
    chains: int,
    temperature: float | None,
    as_json: bool,
) -> None:
    """Let the agent of RECIPE work on QUESTION (by default the first held-out task), its turns shown as they come.

    Several chains are sampled at the recipe's temperature.
    """
    from agentfly_core.cli.targets import find_run
    from agentfly_core.recipes.load import load_recipe
    from agentfly_core.recipes.reading import is_override
    from agentfly_core.types import Task

    if question is not None and is_override(question):  # no question was given
        overrides, question = (question, *overrides), None
    loaded = load_recipe(recipe, overrides, plugins=load_plugins())
    if run is not None:
        loaded = loaded.with_model(find_run(run).weights())
    asked = Task("question", ({"role": "user", "content": question or ""},))
    task = loaded.eval_tasks(1)[0] if question is None else asked
    if temperature is None and chains == 1:
        temperature = 0.0
    trajectories = answer(loaded, task, chains, temperature=temperature, quiet=as_json)
    if as_json:
        show_json([summary(t) for t in trajectories])


def answer(
    loaded: LoadedRecipe, task: Task, chains: int, *, temperature: float | None, quiet: bool
) -> list[Trajectory]:
    """Run the chains, each turn printed when it ends. A temperature of None is the recipe's."""
    import asyncio

    from agentfly_core.types import SamplingParams

    printer = _Printer(named=chains > 1)
    if not quiet:
        loaded.plugins.observe(printer)
    rollout = loaded.recipe.rollout
    sampling = SamplingParams(
        temperature=rollout.temperature if temperature is None else temperature,
        max_tokens=rollout.max_tokens_per_turn,
        stop=tuple(rollout.stop),
    )
    click.echo(f"loading {loaded.recipe.model.path}", err=True)
    backend = loaded.backend()
    try:
        with loaded.engine(backend) as engine:
            split: Split = "eval"
            trajectories = list(engine.run([task], chains=chains, sampling=sampling, split=split))
    finally:
        asyncio.run(backend.close())
        if not quiet:
            loaded.plugins.unobserve(printer)
    return sorted(trajectories, key=lambda t: t.chain_index)


def summary(trajectory: Trajectory) -> dict[str, Any]:
    """A chain as plain data."""
    return {
        "chain": trajectory.chain_index,
        "status": trajectory.status.value,
        "response": trajectory.response,
        "reward": trajectory.reward if trajectory.scored else None,
        "turns": len(trajectory.turns),
        "tokens": trajectory.sampled_tokens,
        "seconds": trajectory.seconds,
        "error": trajectory.error,
        "messages": trajectory.messages,
    }


class _Printer:
    """Prints from the engine's loop, one whole turn at a time. What a model or tool says is never taken as markup."""

    def __init__(self, *, named: bool) -> None:
        self._named = named

    @hookimpl
    def turn_finished(self, chain_index: int, turn: Turn) -> None:
        """What the model said and called, and what came of it."""
        assistant = turn.assistant
        lines = [f"turn {turn.index + 1}" + (" (cut by the token limit)" if turn.cut else "")]
        if assistant.reasoning:
            lines.append(f"  thinks: {printable(assistant.reasoning)}")
        if assistant.content.strip():
            lines.append(f"  says: {printable(assistant.content)}")
        lines += [f"  calls: {_call(call)}" for call in assistant.calls]
        lines += [f"  {o.name} ({o.status.value}): {printable(text_of(o.content))}" for o in turn.outcomes]
        self._say(chain_index, lines)

    @hookimpl
    def trajectory_finished(self, trajectory: Trajectory) -> None:
        """How the chain ended."""
        ended = f"{trajectory.status.value} after {len(trajectory.turns)} turns, {trajectory.seconds:.1f} s"
        lines = [f"answer: {printable(trajectory.response)}", f"({ended})"]
        if trajectory.error:
            lines.append(f"error: {printable(trajectory.error)}")
        if trajectory.scored:
            lines.append(f"reward: {trajectory.reward:.4g}")
        self._say(trajectory.chain_index, lines)

    def _say(self, chain: int, lines: list[str]) -> None:
        prefix = f"[{chain}] " if self._named else ""
        click.echo("\n".join(f"{prefix}{line}" for line in lines))


def _call(call: ToolCall | CallError) -> str:
    arguments = getattr(call, "arguments", None)
    if arguments is None:
        return printable(f"{call.name or '?'}: {getattr(call, 'message', '')}")
    return printable(f"{call.name}({json.dumps(arguments, ensure_ascii=False, default=str)})")
