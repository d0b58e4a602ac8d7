"""Indexes and corpora in one folder."""

from __future__ import annotations

import json

import pytest
from agentfly_tools_web.retrieval import build_index, open_index
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.runs.files import TEMPORARY
from agentfly_core.types import UsageError


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "m.txt").write_text("The Danube.\n\nThe Rhine.\n")
    return folder


@pytest.mark.parametrize("place", ["a", "z/deep", "m.txt.index"])
def test_an_index_within_its_corpus_is_no_part_of_it(corpus, place):
    digests = {build_index(corpus, corpus / place).manifest["digest"] for _ in range(3)}
    digests.add(build_index(corpus, corpus / "other").manifest["digest"])
    assert len(digests) == 1
    assert len(open_index(corpus / place)) == 2


def test_what_is_being_written_is_no_part_of_a_corpus(corpus):
    (corpus / f"{TEMPORARY}1").mkdir()
    (corpus / f"{TEMPORARY}1" / "documents.jsonl").write_text("{half")
    (corpus / f"{TEMPORARY}2.txt").write_text("half")
    assert len(build_index(corpus, corpus / "made")) == 2


def test_a_file_that_merely_has_the_name_of_a_manifest_hides_nothing(corpus):
    (corpus / "site").mkdir()
    (corpus / "site" / "index.json").write_text("{}")
    (corpus / "site" / "page.md").write_text("A page.")
    assert len(build_index(corpus, corpus / "made")) == 3


def test_an_index_is_no_corpus_and_a_corpus_is_not_replaced(corpus, tmp_path):
    made = tmp_path / "made"
    build_index(corpus, made)
    with pytest.raises(UsageError, match="is an index, no corpus"):
        build_index(made, tmp_path / "again")
    (made / "mine.txt").write_text("Mine.")
    with pytest.raises(UsageError, match="which would be replaced: choose another --output"):
        build_index(made / "mine.txt", made)
    assert (made / "mine.txt").read_text() == "Mine."


def test_the_default_output_lies_beside_the_corpus(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(corpus)
    for _ in range(2):
        run = CliRunner().invoke(cli, ["index", "build", ".", "--json"])
        assert run.exit_code == 0, run.output
        shown = json.loads(run.stdout)
        assert (shown["folder"], shown["passages"]) == (str(tmp_path / "corpus.index"), 2)
    assert [path.name for path in corpus.iterdir()] == ["m.txt"]


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x", "x.json.gz"])
def test_a_file_of_an_unknown_kind_is_refused(tmp_path, name):
    (tmp_path / name).write_text("text")
    with pytest.raises(UsageError, match=r"must be a \.jsonl, \.txt or \.md file"):
        build_index(tmp_path / name, tmp_path / "made")


@pytest.mark.parametrize("name", ["UP.JSONL", "bom.jsonl", "Up.Txt", "bom.md"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_case_and_a_byte_order_mark_change_nothing(tmp_path, name, mark):
    row = '{"id": "7", "text": "Danube"}' if "json" in name.lower() else "Danube"
    (tmp_path / name).write_text(mark + row, encoding="utf-8")
    assert build_index(tmp_path / name, tmp_path / "made").passage(0).text == "Danube"


@pytest.mark.parametrize("weight", ["nan", "inf", "-1"])
def test_a_title_weight_that_is_no_weight_is_refused(corpus, weight):
    run = CliRunner().invoke(cli, ["index", "build", str(corpus), "--title-weight", weight])
    assert run.exit_code == 2, run.output
    assert "finite number" in run.output or "not in the range" in run.output
    assert [path.name for path in corpus.parent.iterdir()] == ["corpus"]
