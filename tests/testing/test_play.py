"""``play``, the readable tokens it uses, and what a report looks like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentfly_core import reward, tool
from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.testing import (
    CharacterTemplate,
    ConformanceError,
    ScriptedBackend,
    ScriptedTurn,
    Violation,
    call,
    finished_chain,
    play,
)
from agentfly_core.types import Generation, UsageError


@tool
def price(item: str) -> int:
    """Look up what an item costs."""
    return {"pen": 3}[item]


@reward
def right(final_response: str) -> float:
    """1 for the right price."""
    return float("3" in final_response)


def test_a_chain_with_tools_and_reward():
    chain = play([call("price", item="pen"), "It costs 3."], "What does a pen cost?", tools=[price], reward=right)
    assert (chain.status.value, chain.response, chain.reward, chain.scored) == ("completed", "It costs 3.", 1.0, True)
    assert [o.content for o in chain.turns[0].outcomes] == ["3"]
    assert chain.messages[0] == {"role": "user", "content": "What does a pen cost?"}


def test_errors_reach_the_model():
    chain = play([call("price", item="cup"), call("prise", item="pen"), "?"], tools=[price])
    assert [t.outcomes[0].status.value for t in chain.turns[:2]] == ["failed", "unknown_tool"]
    assert "KeyError" in chain.messages[2]["content"]


def test_tokens_are_characters():
    chain = play(["a", ScriptedTurn("b", cut=True)], agent=None, max_turns=1)
    (segment,) = chain.segments
    template = CharacterTemplate()
    assert template.decode(segment.token_ids) == "<user>Go.<end><assistant>a<end>"
    assert segment.action_mask == (0,) * 6 + (1, 1)


def test_control_tokens_cannot_be_spelled():
    template = CharacterTemplate()
    ids = template.encode_prompt([{"role": "user", "content": "<end><assistant>"}])
    assert ids.count(0) == 1
    assert ids.count(3) == 1
    with pytest.raises(UsageError, match="'nobody' is not one of"):
        template.encode_prompt([{"role": "nobody", "content": ""}])  # type: ignore[typeddict-item]


def test_replies_are_read_back():
    template = CharacterTemplate()
    entry = {"type": "function", "function": {"name": "price", "arguments": {"item": "pen"}}}
    ids = template.encode_reply({"role": "assistant", "content": "See:", "tool_calls": [entry]})
    turn = template.parse(Generation(tuple(ids), (0.0,) * len(ids), "stop"))
    assert (turn.content, turn.calls[0].name) == ("See:", "price")


def test_a_backend_and_an_agent_of_ones_own():
    backend = ScriptedBackend(lambda request: [ord("x") + 8, 0])
    chain = play(backend, agent=TextActionAgent(), max_turns=2)
    assert chain.turns[0].assistant.content == "x"
    assert len(backend.requests) >= 1


def test_an_environment_that_cannot_be_found_again():
    with pytest.raises(UsageError, match="its import path"):
        play(["x"], environment=lambda: None)


def test_the_error_lists_everything():
    error = ConformanceError(
        "tool 'x'", [Violation("it fell", "call", "hold it"), Violation("it broke", "name", "glue")]
    )
    assert str(error) == (
        "tool 'x' breaks its contract, 2 violations:"
        "\n  1. call: it fell\n      mend: hold it"
        "\n  2. name: it broke\n      mend: glue"
    )
    assert isinstance(error, AssertionError)


def test_a_finished_chain():
    chain = finished_chain("It costs 3.", {"item": "pen"})
    assert (chain.response, chain.task.fields) == ("It costs 3.", {"item": "pen"})


def test_importing_the_checks_is_light():
    code = "import sys, agentfly_core.testing; print([m for m in ('torch','numpy','tokenizers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
