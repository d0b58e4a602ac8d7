"""``agentfly templates``: list, check and render chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentfly_core.cli.output import json_option, load_plugins, show, show_json
from agentfly_core.types.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from agentfly_core.templates.check import Step
    from agentfly_core.types import ChatTemplate, Segment

TRAINED = "bold green"
CONTEXT = "dim"
CONTROLS = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}
"""Control characters are spelled out: a conversation must not steer the terminal."""


def _option_values(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{item!r} is not of the form KEY=VALUE", context, parameter)
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


option_option = click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", callback=_option_values, help="Option of the template."
)


@click.group()
def command() -> None:
    """List, check and render chat templates.

    TOKENIZER is a model folder, a tokenizer.json file, or a model's name: one that a package offers, or on the hub.
    """


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """The templates of all plugins."""
    rows = [
        {"name": r.name, "plugin": r.plugin, "distribution": r.distribution, "summary": r.summary}
        for r in load_plugins().registry("templates")
    ]
    if not rows and not as_json:
        click.echo("no templates; install some with: pip install agentfly-plugin-templates-qwen")
        return
    show(rows, as_json=as_json)


@command.command("check")
@click.argument("tokenizer")
@click.option("--template", "name", help="The template; every one that is installed if not given.")
@option_option
@json_option
def check_command(tokenizer: str, name: str | None, options: dict[str, Any], as_json: bool) -> None:
    """Compare templates with the model's own Jinja template, found beside the tokenizer.

    Shows every turn of a set of conversations that bring out differences: what template history does there, and
    where append history has other ids than the model's own template would give, and why. Fails if the template
    renders anything otherwise than the model's own.
    """
    from agentfly_core.templates import load_tokenizer
    from agentfly_core.templates.check import check_template
    from agentfly_core.templates.reference import Reference

    registry = load_plugins().registry("templates")
    if not (names := [name] if name else [r.qualified for r in registry]):
        raise UsageError("no templates are installed; pip install agentfly-plugin-templates-qwen")
    tokenizer = _located(tokenizer)
    loaded = load_tokenizer(tokenizer)
    reference = Reference.load(Path(tokenizer) if Path(tokenizer).is_dir() else Path(tokenizer).parent)
    reports: list[dict[str, Any]] = []
    for each in names:
        try:
            steps = check_template(registry.get(each), loaded, reference, **options)
            reports.append(_report(each, steps))
        except UsageError as error:
            reports.append({"template": each, "fits": False, "reason": str(error), "steps": []})
    if as_json:
        show_json(reports)
    else:
        for report in reports:
            _print_report(report, alone=len(reports) == 1)
    if not any(r["fits"] for r in reports):
        reasons = "; ".join(f"{r['template']}: {r['reason']}" for r in reports)
        raise UsageError(f"no template fits {tokenizer}: {reasons}" if len(reports) > 1 else reports[0]["reason"])


@command.command("render")
@click.argument("tokenizer")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--template", "name", required=True, help="The template.")
@click.option("--history", type=click.Choice(["append", "template"]), default="append", show_default=True)
@click.option("--ids", is_flag=True, help="One line a token, with its id.")
@option_option
@json_option
def render_command(
    tokenizer: str, file: Any, name: str, history: Any, ids: bool, options: dict[str, Any], as_json: bool
) -> None:
    """Show a conversation as training sequences, trained tokens coloured (without colours: in ⟦ ⟧).

    FILE (- for standard input) is JSON: a list of messages, or {"messages": [...], "tools": [...]}. Every assistant
    message counts as sampled.
    """
    from agentfly_core.templates import load_tokenizer
    from agentfly_core.templates.replay import replay

    messages, tools = _conversation(file)
    template = (
        load_plugins()
        .registry("templates")
        .get(name)
        .bind(load_tokenizer(_located(tokenizer)), history=history, **options)
    )
    segments = replay(template, messages, tools)
    if as_json:
        show_json([_segment_json(template, segment) for segment in segments])
    elif ids:
        show([row for i, segment in enumerate(segments) for row in _token_rows(template, segment, i)], as_json=False)
    else:
        _print_segments(template, segments)


def _located(tokenizer: str) -> str:
    """The folder of a model that a package offers by this name; anything else stays as it is."""
    from agentfly_core.recipes.locate import find_model, offered_models

    return find_model(tokenizer, Path.cwd()) if tokenizer in offered_models() else tokenizer


def _report(name: str, steps: Sequence[Step]) -> dict[str, Any]:
    misfits = [s for s in steps if s.misfit]
    reason = ""
    if misfits:
        first = misfits[0]
        reason = (
            f"template {name!r} is not the model's own: {len(misfits)} of {len(steps)} steps differ, the first in "
            f"{first.probe!r}, turn {first.turn}: {first.misfit}"
        )
    return {"template": name, "fits": not misfits, "reason": reason, "steps": [asdict(s) for s in steps]}


def _print_report(report: Mapping[str, Any], *, alone: bool) -> None:
    steps = report["steps"]
    if not report["fits"]:
        if not alone:
            click.echo(f"{report['template']}: does not fit: {report['reason']}\n")
        return
    differing = sum(not s["append_equal"] for s in steps)
    click.echo(
        f"{report['template']} fits: {len(steps)} steps rendered as by the model's own template. "
        f"Append history differs from it in {differing}."
    )
    rows = [
        {
            "conversation": s["probe"],
            "turn": s["turn"],
            "template history": s["template_history"],
            "append history": "same ids" if s["append_equal"] else "differs",
            "why": s["why"],
        }
        for s in steps
        if s["turn"]
    ]
    show(rows, as_json=False)
    click.echo()


def _conversation(file: Any) -> tuple[list[Any], list[Any]]:
    try:
        data = json.load(file)
    except ValueError as error:
        raise UsageError(f"{file.name} is not valid JSON: {error}") from error
    if isinstance(data, list):
        data = {"messages": data}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise UsageError(f'{file.name}: expected a list of messages or {{"messages": [...], "tools": [...]}}')
    tools = data.get("tools") or []
    if not isinstance(tools, list):
        raise UsageError(f"{file.name}: tools must be a list of tool schemas")
    return data["messages"], tools


def _stretches(segment: Segment) -> list[tuple[bool, int, int]]:
    """(trained, start, end) of the segment's stretches in order."""
    result, position = [], 0
    for span in segment.spans:
        result += [(False, position, span.start), (True, span.start, span.end)]
        position = span.end
    return result


def _segment_json(template: ChatTemplate, segment: Segment) -> dict[str, Any]:
    return {
        "token_ids": segment.token_ids,
        "action_mask": segment.action_mask,
        "prompt_len": segment.prompt_len,
        "stretches": [
            {"trained": trained, "start": start, "end": end, "text": template.decode(segment.token_ids[start:end])}
            for trained, start, end in _stretches(segment)
        ],
    }


def _token_rows(template: ChatTemplate, segment: Segment, number: int) -> list[dict[str, Any]]:
    return [
        {
            "segment": number,
            "position": i,
            "id": id,
            "trained": "yes" if trained else "",
            "text": json.dumps(template.decode([id]), ensure_ascii=False),
        }
        for i, (id, trained) in enumerate(zip(segment.token_ids, segment.action_mask, strict=True))
    ]


def _print_segments(template: ChatTemplate, segments: Sequence[Segment]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for number, segment in enumerate(segments):
        trained = sum(segment.action_mask)
        head = f"segment {number + 1} of {len(segments)}: {len(segment.token_ids)} tokens, {trained} trained"
        console.print(head, style="bold", markup=False)
        console.print(_coloured(template, segment, marks=not console.is_terminal))


def _coloured(template: ChatTemplate, segment: Segment, *, marks: bool) -> Text:
    from rich.text import Text

    text = Text()
    for trained, start, end in _stretches(segment):
        piece = template.decode(segment.token_ids[start:end]).translate(CONTROLS)
        text.append(f"⟦{piece}⟧" if trained and marks else piece, TRAINED if trained else CONTEXT)
    return text
