"""QA rewards, by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from agentfly_tools_web.qa import cover_match, exact_match, f1, normalize, qa_cover_match, qa_exact_match, qa_f1
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.testing import check_reward, finished_chain
from agentfly_core.types import ToolContext

REWARDS = {"exact": qa_exact_match, "f1": qa_f1, "cover": qa_cover_match}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Danube, a River.", "danube river"),
        ("AN apple-pie", "applepie"),
        ("theatre of another", "theatre of another"),
        ("U.S.A.", "usa"),
        ("\tthe\n", ""),
        ("Anna's 3.5%", "annas 35"),
        ("Ångström; Ñ", "ångström ñ"),
    ],
)
def test_normalisation(text, normal):
    assert normalize(text) == normal


@pytest.mark.parametrize(
    ("answer", "golden", "exact", "f1_score", "cover"),
    [
        ("the Danube", "Danube.", 1, 1, 1),
        ("The river Danube", "Danube", 0, 2 * 1 / (2 + 1), 1),
        ("cat sat", "the cat sat down", 0, 2 * 2 / (2 + 3), 0),
        ("to be or to be", "to be", 0, 2 * 2 / (5 + 2), 1),
        ("be to", "to be", 0, 1, 0),
        ("in 1912", "12", 0, 0, 0),
        ("Vienna", "Danube", 0, 0, 0),
        ("yes", "Yes!", 1, 1, 1),
        ("yes, it is", "yes", 0, 0, 1),
        ("no", "no way", 0, 0, 0),
        ("", "Danube", 0, 0, 0),
        ("the", "a", 1, 1, 1),
        ("Danube", "the", 0, 0, 0),
    ],
)
def test_scores(answer, golden, exact, f1_score, cover):
    assert exact_match(answer, golden) == exact
    assert f1(answer, golden) == pytest.approx(f1_score)
    assert cover_match(answer, golden) == cover


words = st.lists(st.sampled_from(["the", "Danube", "river", "yes", "no", "1912", ",", ""]), max_size=6).map(" ".join)


@given(answer=words, golden=words)
def test_an_exact_match_is_the_best_of_all(answer, golden):
    assert 0 <= f1(answer, golden) <= 1
    assert f1(answer, golden) == pytest.approx(f1(golden, answer))
    if exact_match(answer, golden):
        assert f1(answer, golden) == cover_match(answer, golden) == 1


def score(reward, response, **fields):
    return asyncio.run(reward.score(finished_chain(response, fields), ToolContext(fields=fields))).score


@pytest.mark.parametrize("golden", [["Donau", "the Danube"], ("Donau", "Danube"), "Danube"])
@pytest.mark.parametrize("name", REWARDS)
def test_the_best_of_several_golden_answers_counts(name, golden):
    assert score(REWARDS[name](), "Danube", answer=golden) == 1.0
    assert score(REWARDS[name](), "Rhine", answer=golden) == 0.0


def test_another_field_and_answers_that_are_no_text():
    assert score(qa_exact_match(field="targets"), "1912", targets=[1911, 1912]) == 1.0
    assert qa_f1(field="targets").fields == {"targets"}


@pytest.mark.parametrize("golden", [{"text": ["Paris"], "answer_start": [1]}, {"text": "Paris"}])
@pytest.mark.parametrize("name", REWARDS)
def test_golden_answers_in_the_form_of_squad_are_its_texts(name, golden):
    assert score(REWARDS[name](), "Paris", answer=golden) == 1.0
    assert score(REWARDS[name](), "answer_start", answer=golden) == 0.0


@pytest.mark.parametrize(
    "golden", [None, True, False, float("nan"), float("inf"), {}, {"answer": "x"}, ["x"], {"text": [None]}, b"x"]
)
@pytest.mark.parametrize("name", REWARDS)
def test_golden_answers_of_another_type_are_an_error_and_pay_nothing(name, golden):
    for value in [[golden], [golden, "x"], ["x", golden]] + ([] if golden == ["x"] else [golden]):
        for response in (str(golden), str(golden).lower(), "x"):
            with pytest.raises(Exception, match=r"the field 'targets' holds .* where a golden answer was expected"):
                score(REWARDS[name](field="targets"), response, targets=value)


@pytest.mark.parametrize("name", REWARDS)
def test_a_chain_without_a_final_answer_scores_nothing_and_no_golden_answer_is_an_error(name):
    chain = replace(finished_chain("It is the Danube", {"answer": "Danube"}), final_response=None)
    assert asyncio.run(REWARDS[name]().score(chain, ToolContext())).score == 0.0
    with pytest.raises(Exception, match="the field 'answer' holds no golden answer"):
        score(REWARDS[name](), "Danube", answer=[])


@pytest.mark.parametrize("name", REWARDS)
def test_the_contract_of_rewards(name):
    check_reward(
        REWARDS[name](), fields={"answer": ["the Danube", "Donau"]}, responses=["Danube", "the", "\u0301", "x" * 9999]
    )
