"""Exact, format and process rewards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentfly_core.plugins import Plugins
from agentfly_core.rewards import environment_return, exact_match, format_match, tool_use
from agentfly_core.types import Reward, RewardResult, ToolContext, UsageError


def score(made: Any, chain: Any) -> RewardResult:
    return asyncio.run(made.score(chain, ToolContext()))


@pytest.mark.parametrize(
    ("response", "answer", "normalize", "right"),
    [
        ("Paris", "Paris", "space", 1),
        (" New\n York ", "New York", "space", 1),
        ("paris", "Paris", "space", 0),
        ("paris", "Paris", "case", 1),
        ("The  Paris!", "paris", "squad", 1),
        ("Parish", "Paris", "squad", 0),
        ("7", 7, "space", 1),
        ("b", ["a", "b"], "space", 1),
        ("c", ["a", "b"], "space", 0),
        ("", "", "space", 1),
    ],
)
def test_exact_match(chain, response, answer, normalize, right):
    assert score(exact_match(normalize=normalize), chain(response, {"answer": answer})).score == right


def test_exact_match_options(chain):
    assert exact_match(field="gold").fields == {"gold"}
    assert score(exact_match(field="gold"), chain("a", {"gold": "a"})).score == 1
    with pytest.raises(UsageError, match="space, case, squad"):
        exact_match(normalize="lower")


def test_format_match(chain):
    made = format_match(pattern=r"<think>.*</think>\s*<answer>.*</answer>")
    assert score(made, chain("<think>a\nb</think>\n<answer>c</answer>\n")).score == 1
    assert score(made, chain("well: <think>a</think><answer>c</answer>")).score == 0
    every = format_match(pattern="[a-z]+", every_turn=True)
    assert score(every, chain("", turns=[{"text": "ab"}, {"text": "1"}, {"text": "c"}, {"text": "2"}])).score == 0.5
    assert score(every, chain("")).score == 0
    with pytest.raises(UsageError, match="no regular expression"):
        format_match(pattern="(")


TURNS = [
    {"calls": [("calculator", "ok"), ("calculator", "failed")]},
    {"calls": []},
    {"calls": [("search", "ok"), ("calculator", "ok"), ("nothing", "unknown_tool")]},
]


def test_tool_use_counts_calls_that_worked(chain):
    done = chain(turns=TURNS)
    assert score(tool_use(), done) == RewardResult(3, {}, (1, 0, 2))
    assert score(tool_use(cap=2, weight=0.5), done) == RewardResult(1.0, {}, (0.5, 0, 0.5))
    assert score(tool_use(tools=["search"]), done) == RewardResult(1, {}, (0, 0, 1))
    assert score(tool_use(cap=0), done).score == 0
    assert score(tool_use(), chain()) == RewardResult(0, {}, ())
    with pytest.raises(UsageError, match="cap"):
        tool_use(cap=-1)


def test_environment_return(chain):
    done = chain(turns=[{"reward": 0.5}, {"reward": -1.0}, {"reward": 2.0}])
    assert score(environment_return, done) == RewardResult(1.5, {}, (0.5, -1.0, 2.0))


def test_the_built_ins_are_found_by_name():
    registry = Plugins.load(warn=False).registry("rewards")
    made = {
        "exact_match": registry.get("core:exact_match")(),
        "numeric_match": registry.get("core:numeric_match")(field="gold"),
        "format": registry.get("core:format")(pattern="x"),
        "tool_use": registry.get("core:tool_use")(),
        "environment_return": registry.get("core:environment_return"),
    }
    assert all(isinstance(r, Reward) for r in made.values())
    assert {name: r.name for name, r in made.items()} == {name: name for name in made}
