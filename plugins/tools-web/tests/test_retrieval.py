"""The local index: its answers against a plain computation of the formula, its files, its command."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agentfly_tools_web.command import command
from agentfly_tools_web.retrieval import Columns, build_index, open_index, read_corpus
from agentfly_tools_web.retrieval.index import FORMAT
from click.testing import CliRunner

from agentfly_core.types import UsageError

ROOT = Path(__file__).parents[3]
WORDS = ["river", "otter", "fish", "water", "stone", "bridge", "night", "lamp", "paper", "winter"]
"""Words that stemming leaves alone and that are no stop words."""


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made_up(count):
    """Passages of many lengths, from a fixed recurrence instead of a random generator."""
    state, rows = 7, []
    for number in range(count):
        words = []
        for _ in range(1 + (number * 37) % 40):
            state = (state * 1103515245 + 12345) % 2**31
            words.append(WORDS[min(state >> 16 & 15, state >> 20 & 15) % len(WORDS)])
        rows.append({"id": f"p{number}", "title": "", "text": " ".join(words)})
    return rows


def length_byte_value(length):
    """Lengths are kept in one byte, exact up to 39 and then in steps (Lucene's SmallFloat): these stay exact."""
    assert length < 40
    return length


def bm25(rows, query, k1=1.2, b=0.75):
    """Scores by the formula: sum of idf * tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length))."""
    texts = [row["text"].split() for row in rows]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        score = 0.0
        for word in query.split():
            holders = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
            tf = text.count(word)
            score += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length_byte_value(len(text)) / mean))
        scores.append(score)
    return scores


def test_scores_are_those_of_the_formula(tmp_path):
    rows = [row for row in made_up(300) if len(row["text"].split()) < 40]
    index = build_index(write(tmp_path / "c.jsonl", rows), tmp_path / "index")
    for query in ("otter", "river lamp", "winter night bridge", "paper paper"):
        want = bm25(rows, " ".join(dict.fromkeys(query.split())))
        found = index.search(query, 300)
        assert len(found) == sum(score > 0 for score in want)
        assert [p.score for p in found] == pytest.approx(sorted((s for s in want if s > 0), reverse=True), abs=2e-4)
        assert all(p.score == pytest.approx(want[p.row], abs=2e-4) for p in found)


def test_equal_scores_stand_in_the_order_of_the_corpus(tmp_path):
    rows = [{"text": "otter river"}] * 500 + [{"text": "otter"}] + [{"text": "otter river"}] * 500
    index = build_index(write(tmp_path / "c.jsonl", rows), tmp_path / "index")
    assert [p.row for p in index.search("otter", 4)] == [500, 0, 1, 2]
    assert [p.row for p in index.search("river", 200)] == list(range(200))


def test_words_are_brought_to_their_stem_and_stop_words_left_out(tmp_path):
    rows = [{"text": "The Swimming of Otters"}, {"text": "a café on the bridge"}, {"text": "the of and to"}]
    index = build_index(write(tmp_path / "c.jsonl", rows), tmp_path / "index")
    for query in ("SWIMS", "otter's", "swim the otter", "Öttér"):
        assert [p.row for p in index.search(query, 3)] == [0], query
    assert [p.row for p in index.search("CAFE")] == [1]
    assert index.search("the of and") == []


@pytest.mark.parametrize(
    "query",
    ["", " ", "?!", "title:otter", 'body:"otter', "otter AND NOT otter", "(otter", "otter^9e99", "[a TO z]", "/.*/",
     "-otter", "*", "otter~", "\x00", "\ud800 otter", "😀", "otter " * 2_000, "x" * 9_000, "日本 otter", "a\\"],
    ids=lambda query: ascii(query[:12]),
)  # fmt: skip
def test_a_query_has_no_syntax(tmp_path_factory, query):
    folder = tmp_path_factory.getbasetemp() / "syntax.index"
    if not folder.exists():
        build_index(write(folder.with_suffix(".jsonl"), [{"text": "otter"}, {"text": "title body and"}]), folder)
    found = [p.text for p in open_index(folder).search(query, 2)]
    assert found[:1] == (["otter"] if "otter" in query else [])


def test_a_match_in_the_title_counts_more(tmp_path):
    rows = [{"title": "Fish", "text": "the otter eats it"}, {"title": "Otter", "text": "it eats fish"}]
    index = build_index(write(tmp_path / "c.jsonl", rows), tmp_path / "index", title_weight=0.5)
    assert [p.title for p in index.search("otter")] == ["Otter", "Fish"]
    assert [p.title for p in index.search("fish")] == ["Fish", "Otter"]


def test_passages_come_back_whole(tmp_path):
    text = 'a "b"\n\u2028 otter\x00 \U0001f600 half \ud83d.'
    rows = [{"id": 7, "title": "T ü", "text": text, "url": "https://x/"}, {"text": "otter"}]
    index = build_index(write(tmp_path / "c.jsonl", rows), tmp_path / "index")
    whole = index.passage(0)
    assert (whole.id, whole.title, whole.url) == ("7", "T ü", "https://x/")
    assert whole.text == text.replace("\ud83d", "\ufffd")
    assert (index.passage(1).id, index.passage(1).title, index.passage(1).url) == ("1", "", "")
    assert len(index) == 2
    for row in (-1, 2):
        with pytest.raises(IndexError):
            index.passage(row)
    assert index.search("otter", 0) == []


def test_two_builds_answer_alike_from_many_threads(tmp_path):
    corpus = write(tmp_path / "c.jsonl", made_up(2000))
    one, two = (build_index(corpus, tmp_path / name) for name in "ab")
    assert one.manifest == two.manifest
    queries = [f"{a} {b}" for a in WORDS for b in WORDS]
    with ThreadPoolExecutor(4) as pool:
        answers = [list(pool.map(lambda q, i=index: i.search(q, 10), queries)) for index in (one, two, one)]
    assert answers[0] == answers[1] == answers[2]


def test_another_process_reads_the_same_index(tmp_path):
    index = build_index(write(tmp_path / "c.jsonl", made_up(50)), tmp_path / "index")
    code = (
        "import sys; from agentfly_tools_web.retrieval import open_index as o; print(o(sys.argv[1]).search('otter', 3))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(index.folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(index.search("otter", 3))


# --- corpora ---------------------------------------------------------------------------------------------------------


def read(path, columns=None):
    return [(p.row, p.id, p.title, p.text) for p in read_corpus(path, columns)]


def test_text_is_cut_at_blank_lines(tmp_path):
    (tmp_path / "b.txt").write_text("one\n  two \n\n \n\nthree\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md.gz").write_bytes(gzip.compress(b"# Four\n"))
    (tmp_path / "ignored.csv").write_text("x")
    assert read(tmp_path / "b.txt") == [(0, "0", "b", "one\ntwo"), (1, "1", "b", "three")]
    assert read(tmp_path) == [*read(tmp_path / "b.txt"), (2, "2", "a", "# Four")]


def test_json_lines(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"id": "a", "title": "T", "text": "x"}\n\n{"contents": "\\"Title\\"\\nbody"}\n{"contents": "bare"}\n'
    )
    want = [(0, "a", "T", "x"), (1, "1", "Title", "body"), (2, "2", "", "bare")]
    assert read(path) == want
    for suffix, opener in ((".gz", gzip.open), (".xz", lzma.open)):
        packed = tmp_path / f"c.jsonl{suffix}"
        with opener(packed, "wb") as file:
            file.write(path.read_bytes())
        assert read(packed) == want
    named = write(tmp_path / "d.jsonl", [{"key": 5, "name": "N", "body": "b"}])
    assert read(named, Columns(id="key", title="name", text="body")) == [(0, "5", "N", "b")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"text": "a"}\n{oops}\n', r"c\.jsonl:2: no JSON"),
        (b"[" * 100_000, r"c\.jsonl:1: no JSON"),
        (b"[1]\n", r"c\.jsonl:1: a line must be an object"),
        (b'{"title": "a", "txt": "b"}\n', r"c\.jsonl:1: no text in the column 'text'; its columns: title, txt"),
        (b'{"text": 3}\n', r"c\.jsonl:1: no text"),
        (b'{"text": "\xff"}\n', "cannot be read as UTF-8"),
        (b"", "has no passage"),
        (b"\n\n", "has no passage"),
    ],
)
def test_a_wrong_corpus_leaves_no_index(tmp_path, content, says):
    (tmp_path / "c.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        build_index(tmp_path / "c.jsonl", tmp_path / "index")
    assert [p.name for p in tmp_path.iterdir()] == ["c.jsonl"]


def test_no_corpus(tmp_path):
    with pytest.raises(UsageError, match="there is no corpus"):
        build_index(tmp_path / "none", tmp_path / "index")
    (tmp_path / "c.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="cannot be read"):
        build_index(tmp_path / "c.jsonl.gz", tmp_path / "index")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"has no \.jsonl"):
        build_index(tmp_path / "empty", tmp_path / "index")


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_new_build_takes_the_place_of_the_old_one_only_when_it_is_whole(tmp_path):
    corpus = write(tmp_path / "c.jsonl", [{"text": "otter"}])
    old = build_index(corpus, tmp_path / "index")
    with pytest.raises(UsageError):
        build_index(tmp_path / "none.jsonl", tmp_path / "index")
    corpus.write_text('{"text": "lamp"}\n{oops')
    with pytest.raises(UsageError):
        build_index(corpus, tmp_path / "index")
    assert [p.text for p in open_index(tmp_path / "index").search("otter")] == ["otter"]
    write(corpus, [{"text": "lamp"}])
    build_index(corpus, tmp_path / "index")
    assert open_index(tmp_path / "index").search("otter") == []
    assert [p.text for p in old.search("otter")] == ["otter"]  # who has it open keeps it


def test_what_is_no_index_is_not_overwritten(tmp_path):
    corpus = write(tmp_path / "c.jsonl", [{"text": "otter"}])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for target in (tmp_path / "mine", corpus):
        with pytest.raises(UsageError, match="is no index"):
            build_index(corpus, target)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_damaged_index_is_refused(tmp_path):
    corpus = write(tmp_path / "c.jsonl", made_up(20))

    def damaged(name, change):
        folder = build_index(corpus, tmp_path / name).folder
        change(folder)
        manifest = folder / "index.json"
        manifest.write_text(manifest.read_text() + " ")  # so that the open one is not taken
        with pytest.raises(UsageError):
            open_index(folder)

    damaged("a", lambda f: (f / "documents.jsonl").write_text("{}\n"))
    damaged("b", lambda f: (f / "offsets.u64").write_bytes(b"12345678"))
    damaged("c", lambda f: (f / "index.json").write_text('{"format": 99}'))
    damaged("d", lambda f: (f / "index.json").write_text("[]"))
    damaged("e", lambda f: (f / "bm25" / "meta.json").unlink())
    damaged("f", lambda f: (f / "documents.jsonl").write_text(""))
    damaged("g", lambda f: (f / "index.json").write_text(json.dumps({"format": FORMAT})))
    damaged("h", lambda f: (f / "index.json").write_text((f / "index.json").read_text().replace("bm25", "foo")))
    damaged("i", lambda f: (f / "index.json").write_text((f / "index.json").read_text().replace("bm25", "dense")))

    index = build_index(corpus, tmp_path / "j")
    file = index.folder / "documents.jsonl"
    file.write_bytes(file.read_bytes().replace(b"{", b"["))  # of the same size: seen only when it is read
    with pytest.raises(UsageError, match="is damaged: build it again"):
        index.passage(0)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.jsonl", [{"key": "k1", "body": "otter"}, {"key": "k2", "body": "lamp"}])
    run = CliRunner().invoke
    done = run(command, ["build", "c.jsonl", "--id-column", "key", "--text-column", "body"])
    assert done.exit_code == 0, done.output
    assert done.output == f"{tmp_path / 'c.jsonl.index'}: 2 passages\n"
    found = run(command, ["search", "c.jsonl.index", "otters", "--json"])
    assert [row["id"] for row in json.loads(found.output)] == ["k1"]
    built = json.loads(run(command, ["build", "c.jsonl", "--text-column", "body", "--output", "x", "--json"]).output)
    assert (built["folder"], built["kind"], built["passages"]) == (str(tmp_path / "x"), "bm25", 2)
    assert isinstance(run(command, ["search", "nowhere", "otter"]).exception, UsageError)


# --- real corpora ----------------------------------------------------------------------------------------------------


def test_questions_find_the_passages_that_answer_them(tmp_path):
    """HotpotQA: two of the ten passages of each question answer it; all 600 passages are searched."""
    data = Path(os.environ.get("AGENTFLY_TEST_DATA", ROOT.parent / "shared" / "data")) / "hotpotqa/distractor_60.json"
    if not data.exists():
        pytest.skip(f"there is no {data} (AGENTFLY_TEST_DATA)")
    questions = json.loads(data.read_text())
    passages = {
        title: " ".join(lines)
        for q in questions
        for title, lines in zip(q["context"]["title"], q["context"]["sentences"], strict=True)
    }
    corpus = write(tmp_path / "c.jsonl", [{"title": title, "text": text} for title, text in passages.items()])
    index = build_index(corpus, tmp_path / "index", title_weight=0.5)
    found = {q["question"]: {p.title for p in index.search(q["question"], 5)} for q in questions}
    wanted = {q["question"]: set(q["supporting_facts"]["title"]) for q in questions}
    assert sum(bool(found[q] & wanted[q]) for q in found) >= 0.95 * len(questions)
    assert sum(len(found[q] & wanted[q]) / len(wanted[q]) for q in found) >= 0.75 * len(questions)


@pytest.mark.slow
def test_known_items_among_271_013_dictionary_entries(tmp_path):
    bench = runpy.run_path(str(ROOT / "benchmarks" / "retrieval.py"))
    root = Path(os.environ.get("AGENTFLY_DICTIONARIES", "/"))
    if absent := bench["missing"](root):
        pytest.skip(f"needs the dictionaries: apt-get install {' '.join(absent)}")
    corpus = write(tmp_path / "c.jsonl", bench["entries"](root))
    index = build_index(corpus, tmp_path / "index")
    assert len(index) == 271_013
    titles = {question: {p.title.lower() for p in index.search(question, 5)} for question in bench["KNOWN_ITEMS"]}
    assert [question for question, meant in bench["KNOWN_ITEMS"].items() if not meant & titles[question]] == []
    hits = sum(row in {p.row for p in index.search(query, 5)} for query, row in bench["sampled_queries"](corpus, 1000))
    assert hits >= 900
