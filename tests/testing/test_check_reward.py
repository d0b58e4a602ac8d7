"""``check_reward`` passes good rewards and finds what is wrong with others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentfly_core import reward
from agentfly_core.plugins import Plugins
from agentfly_core.testing import call, check_reward, finished_chain, play
from agentfly_core.tools.calculator import calculator
from agentfly_core.types import AssistantTurn, RewardResult, Turn

OPTIONS = {"format": {"pattern": ".*"}}
FIELDS = {"answer": "4054", "expected": "4054"}


@pytest.mark.parametrize("name", ["exact_match", "numeric_match", "format", "tool_use", "environment_return"])
def test_built_in_rewards_pass(name):
    item = Plugins.load(warn=False).registry("rewards").get(f"core:{name}")
    built_in = item if hasattr(item, "score") else item(**OPTIONS.get(name, {}))
    chain = play([call("calculator", expression="47*86+12"), "It is 4054."], tools=[calculator])
    chain = replace(chain, task=replace(chain.task, fields=FIELDS))
    check_reward(built_in, fields=FIELDS, responses=["It is 4054."], trajectories=[chain])


def test_good_rewards_pass():
    @reward
    def right(final_response, answer):
        return {"score": float(answer in final_response), "length": len(final_response)}

    @reward
    async def maybe(final_response, hint=""):
        return float(hint in final_response)

    check_reward(right, fields={"answer": "4", "other": "x"}, responses=["4"])
    check_reward(maybe, fields={"hint": "4"})
    check_reward(maybe)


def test_a_factory_is_no_reward(found):
    with found("it lacks name, fields, score"):
        check_reward(lambda: None)  # type: ignore[arg-type]


def test_a_reward_that_is_not_finite(found):
    @reward
    def ratio(final_response):
        return len(final_response) / 0.0 if False else float("inf")

    with found("the score is not finite"):
        check_reward(ratio)


def test_a_reward_that_odd_responses_break(found):
    @reward
    def last_word(final_response):
        return float(final_response.split()[-1] == "yes")

    with found("it raised CallFailed: IndexError") as caught:
        check_reward(last_word)
    assert "a model must not be able to escape its score" in str(caught.value)


def test_a_field_that_is_not_declared(found):
    @reward
    def right(final_response, trajectory):
        return float(trajectory.task.fields["answer"] in final_response)

    with found("it raised CallFailed: KeyError: 'answer'") as caught:
        check_reward(right, fields={"answer": "4"})
    assert "name every field that it needs" in str(caught.value)


def test_fields_without_a_value(found):
    @reward
    def right(final_response, answer):
        return 1.0

    with found("no value was given for answer"):
        check_reward(right)


def test_the_wrong_number_of_turn_rewards(found):
    class Broken:
        name = "broken"
        fields = frozenset()

        async def score(self, trajectory, context):
            return RewardResult(1.0, turn_rewards=(1.0,))

    with found("1 turn rewards for 2 turns", "1 turn rewards for 0 turns"):
        turns = tuple(Turn(i, 0, (), "stop", AssistantTurn("")) for i in range(2))
        check_reward(Broken(), responses=["x"], trajectories=[replace(finished_chain("x"), turns=turns)])


def test_other_results_and_fields(found):
    class Broken:
        name = ""
        fields = frozenset()

        async def score(self, trajectory, context):
            return 1.0

    with found("'' is no name", "it returned 1.0"):
        check_reward(Broken())
    Broken.fields = ["answer"]  # type: ignore[assignment]
    with found("they are ['answer']"):
        check_reward(Broken())


def test_a_reward_that_changes_the_task(found):
    @reward
    def sorted_answers(final_response, answers):
        answers.sort()
        return 1.0

    with found("it changed the task"):
        check_reward(sorted_answers, fields={"answers": ["b", "a"]})


def test_a_hanging_reward(found):
    import asyncio

    @reward
    async def slow(final_response):
        await asyncio.sleep(3600)

    with found("TimeoutError: it did not end within 0.1 s"):
        check_reward(slow, timeout=0.1)
