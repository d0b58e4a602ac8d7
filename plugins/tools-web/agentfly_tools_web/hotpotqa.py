"""``agentfly hotpotqa``: multi-hop questions with their passages (Yang et al., arXiv 1809.09600), ready to train on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import click

from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval.corpus import whole_text

HELD_OUT = 5
"""Without a file of their own, one question in so many is kept for evaluation, chosen by the hash of its id."""
SHAPE = "expected question, answer and context, as the HotpotQA files (distractor setting) have them"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its golden answer, and its passages as (title, text)."""

    id: str
    question: str
    answer: str
    passages: tuple[tuple[str, str], ...]
    supporting: tuple[str, ...]
    """Titles of the passages that the answer follows from."""

    def row(self) -> dict[str, Any]:
        """As a row of a data file."""
        return {"id": self.id, "prompt": self.question, "answer": self.answer, "supporting": list(self.supporting)}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--eval", "eval_file", type=click.Path(path_type=Path), metavar="FILE", help="Questions to evaluate on.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("hotpotqa"), show_default=True, metavar="DIR")
def command(file: Path, eval_file: Path | None, output: Path) -> None:
    """Make questions, an index of their passages and a recipe from FILE, a HotpotQA file in JSON or JSON lines.

    Without --eval a fifth of the questions is held out.
    """
    count, held, passages = prepare(file, output, eval_file=eval_file)
    click.echo(f"{output}: {count} questions to train on, {held} to evaluate on, {passages} passages")
    click.echo(f"agentfly train {output / 'recipe.yaml'}")


def prepare(file: Path, output: Path, *, eval_file: Path | None = None) -> tuple[int, int, int]:
    """Write ``train.jsonl``, ``eval.jsonl``, ``corpus.jsonl``, ``index`` and ``recipe.yaml``; how many of each kind.

    Raises:
        UsageError: a file is missing or not in HotpotQA's form, or there is no question for one of the splits.
    """
    from agentfly_tools_web.retrieval import build_index

    questions = read_questions(file)
    train = [q for q in questions if eval_file is not None or not _held_out(q.id)]
    held = read_questions(eval_file) if eval_file is not None else [q for q in questions if _held_out(q.id)]
    if not train or not held:
        raise UsageError(f"{file} has {len(questions)} questions: too few to hold some out; give others with --eval")
    output.mkdir(parents=True, exist_ok=True)
    _write(output / "train.jsonl", (q.row() for q in train))
    _write(output / "eval.jsonl", (q.row() for q in held))
    corpus = list(corpus_rows([*train, *held]))
    _write(output / "corpus.jsonl", corpus)
    build_index(output / "corpus.jsonl", output / "index", title_weight=0.5)
    if not (output / "recipe.yaml").exists():  # it may have been changed since
        recipe = resources.files("agentfly_tools_web").joinpath("hotpotqa.yaml").read_text(encoding="utf-8")
        (output / "recipe.yaml").write_text(recipe, encoding="utf-8")
    return len(train), len(held), len(corpus)


def read_questions(file: Path) -> list[Question]:
    """The questions of a HotpotQA file: a JSON list, or JSON lines.

    Raises:
        UsageError: it cannot be read, or one of its rows has another form; the message names the row.
    """
    try:
        text = file.read_text(encoding="utf-8")
        listed = text.lstrip().startswith("[")
        rows = json.loads(text) if listed else [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read as JSON: {error}") from error
    questions = []
    for number, row in enumerate(rows, 1):
        try:
            questions.append(_question(row, number))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{file}, row {number}: {SHAPE} ({type(error).__name__}: {error})") from error
    return questions


def corpus_rows(questions: Iterable[Question]) -> Iterator[dict[str, str]]:
    """The passages of the questions, each once, as rows of a corpus."""
    passages = dict.fromkeys(passage for question in questions for passage in question.passages)
    for number, (title, text) in enumerate(passages):
        yield {"id": str(number), "title": title, "text": text}


def _question(row: Mapping[str, Any], number: int) -> Question:
    return Question(
        id=whole_text(str(row.get("_id", row.get("id", number)))),
        question=_text(row["question"]),
        answer=_text(row["answer"]),
        passages=tuple(_passages(row["context"])),
        supporting=_supporting(row.get("supporting_facts") or ()),
    )


def _passages(context: Any) -> Iterator[tuple[str, str]]:
    """From ``[[title, sentences], ...]``, as published, or ``{"title": [...], "sentences": [...]}``, as on the hub."""
    pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, Mapping) else context
    for title, sentences in pairs:
        yield _text(title), " ".join(_text(sentence).strip() for sentence in sentences)


def _supporting(facts: Any) -> tuple[str, ...]:
    titles: Sequence[Any] = facts["title"] if isinstance(facts, Mapping) else [title for title, _ in facts]
    return tuple(dict.fromkeys(map(_text, titles)))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, got {value!r:.60}")
    return whole_text(value)


def _held_out(identifier: str) -> bool:
    return hashlib.blake2b(identifier.encode(), digest_size=8).digest()[0] % HELD_OUT == 0


def _write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
