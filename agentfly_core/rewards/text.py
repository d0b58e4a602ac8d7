"""Rewards that compare text."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any, Literal

from agentfly_core.rewards.function import FunctionReward
from agentfly_core.types.errors import UsageError
from agentfly_core.types.trajectories import Trajectory

Normalize = Literal["space", "case", "squad"]
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(*, field: str = "answer", normalize: Normalize = "space") -> FunctionReward:
    """1 if the final response equals the answer, or one of the answers where the field holds a list.

    Args:
        field: the data-set field with the answer.
        normalize: what is made equal in both first. ``space``: runs of white space and those at the ends. ``case``:
            letter case as well. ``squad``: also punctuation and the articles a, an, the (Rajpurkar et al.,
            1606.05250).
    """
    if normalize not in _NORMALIZERS:
        raise UsageError(f"reward 'exact_match': normalize must be one of {', '.join(_NORMALIZERS)}, got {normalize!r}")
    normal = _NORMALIZERS[normalize]

    def score(trajectory: Trajectory, final_response: str) -> bool:
        wanted = trajectory.task.fields[field]
        answers: list[Any] = wanted if isinstance(wanted, list) else [wanted]
        return normal(final_response) in {normal(str(answer)) for answer in answers}

    return FunctionReward(score, name="exact_match", fields={field})


def format_match(*, pattern: str, every_turn: bool = False) -> FunctionReward:
    """1 if the final response as a whole matches the regular expression; a dot matches line ends too.

    Args:
        pattern: in Python's syntax. Model output is matched against it: one that nests repetitions, such as
            ``(a+)+``, may take for ever.
        every_turn: the share of turns whose content matches instead.
    """
    try:
        wanted = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"reward 'format': the pattern {pattern!r} is no regular expression: {error}") from error

    def score(trajectory: Trajectory, final_response: str) -> float:
        texts = [turn.assistant.content for turn in trajectory.turns] if every_turn else [final_response]
        return sum(wanted.fullmatch(text.strip()) is not None for text in texts) / max(len(texts), 1)

    return FunctionReward(score, name="format")


def _space(text: str) -> str:
    return " ".join(text.split())


def _squad(text: str) -> str:
    return _space(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)))


_NORMALIZERS: dict[str, Callable[[str], str]] = {
    "space": _space,
    "case": lambda text: _space(text).casefold(),
    "squad": _squad,
}
