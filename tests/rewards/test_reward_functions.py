"""What a reward gets, and what it may return."""

from __future__ import annotations

import asyncio
import math
import time
from fractions import Fraction
from typing import Any

import pytest

from agentfly_core.calls import CallFailed, CallTimedOut
from agentfly_core.rewards import FunctionReward, WeightedReward, reward
from agentfly_core.types import AgentFlyError, Reward, RewardResult, ToolContext, UsageError


def score(made: Any, chain: Any, context: ToolContext | None = None) -> RewardResult:
    return asyncio.run(made.score(chain, context or ToolContext()))


class World:
    """Stands where an environment would."""


def test_it_gets_what_it_names(chain):
    seen: dict[str, Any] = {}

    @reward
    def judge(trajectory, final_response, messages, environment, context, answer, level=3, missing="default"):
        seen.update(locals())
        return 0.5

    messages = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})
    done = chain("42", {"answer": 42, "level": 9, "other": 1}, messages=messages)
    context = ToolContext(task_id="task-1", environment=World())
    assert score(judge, done, context) == RewardResult(0.5)
    seen.pop("seen")
    assert seen == {
        "trajectory": done,
        "final_response": "42",
        "messages": list(messages),
        "environment": context.environment,
        "context": context,
        "answer": 42,
        "level": 9,
        "missing": "default",
    }
    assert judge.fields == {"answer"}
    assert isinstance(judge, Reward)


def test_keyword_arguments_get_all_other_fields(chain):
    @reward
    def judge(answer, **rest):
        return float(rest == {"level": 9, "context": "a column", "other": 1})

    fields = {"answer": 42, "level": 9, "other": 1, "context": "a column"}
    assert score(judge, chain("", fields)).score == 1.0
    assert judge.fields == {"answer"}


def test_the_last_assistant_text_stands_in_for_a_missing_final_response(chain):
    made = reward(name="same")(lambda final_response: final_response == "so 5")
    assert score(made, chain(None, messages=[{"role": "assistant", "content": "so 5"}])).score == 1.0
    assert score(made, chain(None)).score == 0.0


def test_a_missing_field_is_an_error_that_names_it(chain):
    @reward
    def judge(answer, level):
        return 1.0

    with pytest.raises(UsageError, match=r"'judge' needs the data-set field 'level'.*'task-1' has 'answer'"):
        score(judge, chain("", {"answer": 1}))


def test_an_environment_is_demanded_only_without_default(chain):
    with pytest.raises(UsageError, match="needs an environment"):
        score(reward(name="a")(lambda environment: 1.0), chain())
    assert score(reward(name="b")(lambda environment=None: environment is None), chain()).score == 1.0


class Judge:
    def __init__(self, best: float) -> None:
        self.best = best

    @reward
    async def one(self, answer: int) -> float:
        return self.best * answer

    @reward
    @staticmethod
    def two(answer: int) -> float:
        return 2 * answer


def test_methods_and_async_functions(chain):
    judge = Judge(10)
    assert judge.one.fields == {"answer"}
    assert score(judge.one, chain("", {"answer": 3})).score == 30
    assert score(Judge.two, chain("", {"answer": 3})).score == 6
    with pytest.raises(UsageError, match="is a method"):
        _ = Judge.one.fields
    assert reward(lambda_like)(4) == 8


def lambda_like(answer: int) -> int:
    return 2 * answer


def test_parameters_that_cannot_be_named_are_refused():
    def positional(answer, /): ...

    def star(*answers): ...

    for function in (positional, star):
        with pytest.raises(UsageError):
            _ = reward(function).fields
    with pytest.raises(UsageError, match="timeout"):
        reward(timeout=0)(lambda_like)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1, RewardResult(1.0)),
        (True, RewardResult(1.0)),
        (0.25, RewardResult(0.25)),
        (Fraction(1, 4), RewardResult(0.25)),
        ({"a": 1, "b": 0.5}, RewardResult(1.5, {"a": 1.0, "b": 0.5})),
        ({"score": 3, "b": 0.5}, RewardResult(3.0, {"b": 0.5})),
        ({"score": 2}, RewardResult(2.0)),
        (RewardResult(1, {"a": True}, (0, 1)), RewardResult(1.0, {"a": 1.0}, (0.0, 1.0))),
    ],
)
def test_return_values(chain, value, wanted):
    result = score(reward(name="r")(lambda: value), chain(turns=[{}, {}]))
    assert result == wanted
    assert type(result.score) is float


@pytest.mark.parametrize(
    "value", [None, "1.0", "nan", [1.0], {}, {"a": "1"}, {"a": None}, RewardResult(None), RewardResult(0, {}, (1.0,))]
)
def test_what_is_no_reward_raises_rather_than_scoring_zero(chain, value):
    with pytest.raises((TypeError, ValueError)):
        score(reward(name="r")(lambda: value), chain(turns=[{}, {}]))


def test_nan_is_handed_on_as_not_finite(chain):
    result = score(reward(name="r")(lambda: {"a": math.nan, "b": 1}), chain())
    assert not result.is_finite()


def test_errors_keep_their_name_and_a_hanging_reward_times_out(chain):
    @reward
    def broken(answer):
        return {}[answer]

    with pytest.raises(CallFailed, match="KeyError: 'x'"):
        score(broken, chain("", {"answer": "x"}))

    @reward(timeout=0.05)
    def slow():
        time.sleep(1)

    with pytest.raises(CallTimedOut):
        score(slow, chain())

    @reward
    def leaves():
        raise SystemExit(1)

    with pytest.raises(CallFailed, match="SystemExit"):
        score(leaves, chain())


def test_the_kind_by_which_local_plugins_are_found():
    assert FunctionReward.__agentfly_kind__ == "rewards"


def named(name: str, value: Any, **options: Any) -> FunctionReward:
    return reward(name=name, **options)(lambda: value)


def test_a_weighted_sum_keeps_its_parts(chain):
    total = WeightedReward(
        [named("right", 1, fields={"answer"}), named("form", {"open": 1, "close": 0}), named("right", 0.5)],
        [1.0, 0.5, -2.0],
    )
    assert total.fields == {"answer"}
    result = score(total, chain("", {"answer": 1}, turns=[{}, {}]))
    assert result.score == 1 * 1.0 + 1 * 0.5 - 2 * 0.5
    assert result.components == {"right": 1, "form": 1, "form/open": 1, "form/close": 0, "right#2": 0.5}
    assert result.turn_rewards is None


def test_turn_rewards_are_added_and_the_others_go_to_the_last_turn(chain):
    total = WeightedReward(
        [named("steps", RewardResult(3, turn_rewards=(1, 2, 0))), named("right", 1), named("late", 10)], [1, 2, 0.1]
    )
    result = score(total, chain(turns=[{}, {}, {}]))
    assert result.turn_rewards == (1, 2, 2 + 1)
    assert result.score == sum(result.turn_rewards) == 6


@pytest.mark.parametrize("name", ["reward", "total"])
def test_a_mapping_whose_sum_cannot_be_meant_is_refused(chain, name):
    mapping = {name: 0.9, "right": 1}
    with pytest.raises(AgentFlyError, match=f"call {name!r} 'score'"):
        score(WeightedReward([named("own", mapping)], [1.0]), chain())
    assert score(named("own", {**mapping, "score": 0.5}), chain()).score == 0.5


def test_one_failing_part_fails_the_whole_by_name(chain):
    @reward
    def broken():
        raise ValueError("no judge")

    with pytest.raises(AgentFlyError, match="reward 'broken': ValueError: no judge"):
        score(WeightedReward([named("a", 1), broken]), chain())
    for rewards, weights in (([], []), ([broken], [1, 2])):
        with pytest.raises(UsageError):
            WeightedReward(rewards, weights)
