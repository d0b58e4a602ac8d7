"""Rewards for questions with short answers, after the normalisation of SQuAD (Rajpurkar et al., arXiv 1606.05250).

Normalised, a text is in lower case and without punctuation, the articles a, an, the, and more than single spaces. A
chain that gave no final answer scores 0, whatever it wrote on the way.

A golden answer is a text, a finite number, a list of those, or SQuAD's ``{"text": [...], "answer_start": [...]}``, of
which the texts count. Anything else is an error, so that no chain is paid for writing "None" or "true".
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping

from agentfly_core.rewards import FunctionReward
from agentfly_core.types import Trajectory

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
CLOSED = frozenset({"yes", "no", "noanswer"})
"""Answers that are right or wrong, and share no words with others (HotpotQA's evaluation)."""


def qa_exact_match(*, field: str = "answer") -> FunctionReward:
    """1 if the final answer equals the golden one, or one of them where the field holds a list.

    Args:
        field: the data-set field with the golden answer or answers.
    """
    return _reward("qa_exact_match", field, exact_match)


def qa_f1(*, field: str = "answer") -> FunctionReward:
    """F1 of the final answer's words against the golden answer's, the best over several golden answers.

    Args:
        field: the data-set field with the golden answer or answers.
    """
    return _reward("qa_f1", field, f1)


def qa_cover_match(*, field: str = "answer") -> FunctionReward:
    """1 if the golden answer, or one of them, stands in the final answer as whole words.

    Args:
        field: the data-set field with the golden answer or answers.
    """
    return _reward("qa_cover_match", field, cover_match)


def exact_match(answer: str, golden: str) -> float:
    """1 if both are equal after normalisation, else 0."""
    return float(normalize(answer) == normalize(golden))


def f1(answer: str, golden: str) -> float:
    """2PR / (P + R), with the share P of the answer's words that are in the golden one, and R the other way round.

    Words count as often as they occur in both. Two empty texts agree. A yes or no is never half right.
    """
    given, wanted = normalize(answer), normalize(golden)
    if given != wanted and (given in CLOSED or wanted in CLOSED):
        return 0.0
    words, golden_words = given.split(), wanted.split()
    if not words or not golden_words:
        return float(words == golden_words)
    common = sum((Counter(words) & Counter(golden_words)).values())
    return 2 * common / (len(words) + len(golden_words))


def cover_match(answer: str, golden: str) -> float:
    """1 if the golden answer's words stand in the answer, in their order and one after another, else 0."""
    wanted = normalize(golden)
    return float(f" {wanted} " in f" {normalize(answer)} " if wanted else not normalize(answer))


def normalize(text: str) -> str:
    """Lower case; then without punctuation, articles, and white space other than single spaces between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def _reward(name: str, field: str, compare: Callable[[str, str], float]) -> FunctionReward:
    def score(trajectory: Trajectory) -> float:
        golden = _golden_answers(trajectory.task.fields[field], field)
        answer = trajectory.final_response
        return 0.0 if answer is None else max(compare(answer, wanted) for wanted in golden)

    return FunctionReward(score, name=name, fields={field})


def _golden_answers(value: object, field: str) -> list[str]:
    if isinstance(value, Mapping) and "text" in value:
        value = value["text"]
    answers = value if isinstance(value, list | tuple) else [value]
    if not answers:
        raise ValueError(f"the field {field!r} holds no golden answer")
    return [_golden_text(answer, field) for answer in answers]


def _golden_text(value: object, field: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if isinstance(value, str) or number:
        return str(value)
    raise ValueError(
        f"the field {field!r} holds {value!r:.60} where a golden answer was expected: a text, a finite number, "
        "or a list of those"
    )
