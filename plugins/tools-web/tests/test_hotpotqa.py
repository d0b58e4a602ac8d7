"""HotpotQA files made ready to train on."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from agentfly_tools_web.hotpotqa import Question, prepare, read_questions
from agentfly_tools_web.retrieval import open_index
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.recipes.load import load_recipe
from agentfly_core.types import ToolContext, UsageError

DATA = Path(os.environ.get("AGENTFLY_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
REAL = DATA / "hotpotqa" / "distractor_60.json"

PUBLISHED = {
    "_id": "a1",
    "question": "Which river flows through Vienna?",
    "answer": "the Danube",
    "supporting_facts": [["Vienna", 0], ["Danube", 0], ["Danube", 1]],
    "context": [
        ["Vienna", ["Vienna is in Austria.", " It lies on the Danube."]],
        ["Danube", ["A river."]],
        ["Rhine", []],
    ],
}
ON_THE_HUB = {
    "id": "b2",
    "question": "Is the Rhine a river?",
    "answer": "yes",
    "supporting_facts": {"title": ["Rhine"], "sent_id": [0]},
    "context": {"title": ["Rhine", "Danube"], "sentences": [["The Rhine is a river."], ["A river."]]},
}


def write(file: Path, *rows: object, lines: bool = False) -> Path:
    file.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows), encoding="utf-8")
    return file


@pytest.mark.parametrize("lines", [False, True])
def test_both_forms_are_read(tmp_path, lines):
    first, second = read_questions(write(tmp_path / "q.json", PUBLISHED, ON_THE_HUB, lines=lines))
    assert first == Question(
        "a1",
        "Which river flows through Vienna?",
        "the Danube",
        (("Vienna", "Vienna is in Austria. It lies on the Danube."), ("Danube", "A river."), ("Rhine", "")),
        ("Vienna", "Danube"),
    )
    assert second.passages == (("Rhine", "The Rhine is a river."), ("Danube", "A river."))
    assert second.supporting == ("Rhine",)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_a_newline_ends_a_line_of_json(tmp_path, end):
    row = {**PUBLISHED, "question": "A\u2028B\x85C\u2029D\x7f?"}
    file = tmp_path / "q.jsonl"
    file.write_bytes(end.join(json.dumps(row, ensure_ascii=False) for _ in range(2)).encode())
    assert [q.question for q in read_questions(file)] == [row["question"]] * 2


@pytest.mark.parametrize("place", ["_id", "question", "answer", "context", "supporting_facts"])
def test_halves_of_surrogate_pairs_are_replaced_wherever_they_stand(tmp_path, place):
    half = {"context": [["V\ud800", ["\udc00."]]], "supporting_facts": [["V\ud800", 0]]}.get(place, "q\ud800")
    rows = [{**PUBLISHED, "_id": f"q{n}"} for n in range(40)]
    file = write(tmp_path / "q.json", *rows, {**PUBLISHED, place: half})
    run = CliRunner().invoke(cli, ["hotpotqa", str(file), "--output", str(tmp_path / "made")])
    assert run.exit_code == 0, run.output
    written = "".join((tmp_path / "made" / f"{name}.jsonl").read_text("utf-8") for name in ("train", "eval", "corpus"))
    assert "\ufffd" in written


def many(count):
    return [{**PUBLISHED, "_id": f"q{n}"} for n in range(count)]


def test_what_is_written_is_a_recipe_that_loads(tmp_path):
    output = tmp_path / "made"
    run = CliRunner().invoke(
        cli, ["hotpotqa", str(write(tmp_path / "q.json", *many(40), ON_THE_HUB)), "--output", str(output)]
    )
    assert run.exit_code == 0, run.output
    rows = {
        name: [json.loads(line) for line in (output / f"{name}.jsonl").open()] for name in ("train", "eval", "corpus")
    }
    assert len(rows["train"]) + len(rows["eval"]) == 41
    assert 2 <= len(rows["eval"]) <= 16
    assert not {r["id"] for r in rows["train"]} & {r["id"] for r in rows["eval"]}
    assert rows["corpus"] == [
        {"id": "0", "title": "Vienna", "text": "Vienna is in Austria. It lies on the Danube."},
        {"id": "1", "title": "Danube", "text": "A river."},
        {"id": "2", "title": "Rhine", "text": ""},
        {"id": "3", "title": "Rhine", "text": "The Rhine is a river."},
    ]
    assert open_index(output / "index").search("austria", 1)[0].title == "Vienna"
    loaded = load_recipe(output / "recipe.yaml")
    assert (loaded.agent().name, [t.name for t in loaded.tools]) == ("search-r1", ["retrieve"])
    task = next(loaded.train_tasks())
    assert task.messages[0]["content"] in (PUBLISHED["question"], ON_THE_HUB["question"])
    found = asyncio.run(loaded.tools[0].call({"query": "what lies in Austria"}, ToolContext()))
    assert "[1] Vienna" in found.content
    # A recipe that was changed is kept.
    (output / "recipe.yaml").write_text("name: mine\n")
    prepare(tmp_path / "q.json", output)
    assert (output / "recipe.yaml").read_text() == "name: mine\n"


def test_questions_of_their_own_to_evaluate_on(tmp_path):
    train, held = write(tmp_path / "t.json", *many(3)), write(tmp_path / "e.json", ON_THE_HUB)
    assert prepare(train, tmp_path / "made", eval_file=held) == (3, 1, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read as JSON"),
        ("[{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[3]", "row 1: expected question, answer and context"),
        (
            json.dumps([PUBLISHED, {**PUBLISHED, "question": None}]),
            "row 2: expected question.*a text was expected, got None",
        ),
        (json.dumps([{**PUBLISHED, "context": [["Vienna"]]}]), "row 1: expected question"),
        (json.dumps([{**ON_THE_HUB, "context": {"title": ["x"], "sentences": []}}]), "row 1: expected question"),
        (json.dumps([PUBLISHED]), "too few to hold some out; give others with --eval"),
        ("", "too few to hold some out"),
    ],
)
def test_wrong_files_are_one_error(tmp_path, text, said):
    file = tmp_path / "q.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said):
        prepare(file, tmp_path / "made")
    run = CliRunner().invoke(cli, ["hotpotqa", str(file), "--output", str(tmp_path / "made")])
    assert run.exit_code == 2


@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is missing; set AGENTFLY_TEST_DATA")
def test_real_questions_find_their_passages(tmp_path):
    assert prepare(REAL, tmp_path) == (52, 8, 600)
    index = open_index(tmp_path / "index")
    questions = read_questions(REAL)
    # Ten passages a question, of which two or three support the answer: BM25 on the question alone finds most of them.
    found = wanted = 0
    for question in questions:
        titles = {passage.title for passage in index.search(question.question, 5)}
        found += len(titles & set(question.supporting))
        wanted += len(question.supporting)
    assert wanted >= 120
    assert found / wanted >= 0.5
