"""The facade, over the real engine, template and agent, and a scripted model."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from agentfly_core import HFAgent, reward
from agentfly_core.api import FinishedEvent, ToolEvent, TurnEvent
from agentfly_core.plugins import Plugins
from agentfly_core.recipes.data import conversation_tasks
from agentfly_core.types import ChainStatus, Trajectory, UsageError

CALL = '<tool_call>\n{"name": "double", "arguments": {"x": 21}}\n</tool_call>'
QUESTION = [{"role": "user", "content": "Twice 21?"}]


@pytest.fixture
def make(model: Path, plugins: Plugins, parts: dict[str, Any]) -> Any:
    def build(turns: list[str] | None = None, **options: Any) -> HFAgent:
        config = {"backend": "scripted", "turns": turns or [CALL, "42"]}
        given = {"tools": [parts["double"]], "template": "mini", "backend_config": config, "plugins": plugins}
        return HFAgent(model_name_or_path=str(model), **{**given, **options})

    return build


def test_run_answers_with_tools_and_reward(make: Any, parts: dict[str, Any]) -> None:
    async def main() -> Any:
        async with make(reward=parts["is_right"]) as agent:
            conversations = [{"messages": QUESTION, "answer": "42"}, {"messages": QUESTION, "answer": "41"}]
            return await agent.run(messages=conversations, max_turns=3, num_chains=2)

    result = asyncio.run(main())
    assert [(t.task.id, t.chain_index) for t in result.trajectories] == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
    assert result.rewards == [1.0, 1.0, 0.0, 0.0]
    first = result.trajectories[0]
    assert (first.status, first.final_response) == (ChainStatus.COMPLETED, "42")
    assert [m["role"] for m in first.messages] == ["user", "assistant", "tool", "assistant"]
    assert first.messages[2]["content"] == "42"


def test_a_new_reward_and_no_reward(make: Any) -> None:
    @reward
    def says_42(final_response: str) -> float:
        """1 if it says 42."""
        return float("42" in final_response)

    async def rewards(**options: Any) -> Any:
        async with make(**options) as agent:
            return (await agent.run(QUESTION, max_turns=3)).rewards

    assert asyncio.run(rewards(reward=says_42)) == [1.0]
    assert asyncio.run(rewards(reward="short")) == [1.0]
    assert asyncio.run(rewards()) == [None]


def test_a_reward_that_cannot_score_says_why(make: Any, parts: dict[str, Any], caplog: Any) -> None:
    async def main() -> Any:
        async with make(reward=parts["is_right"]) as agent:
            return (await agent.run(QUESTION, max_turns=3, num_chains=2)).rewards

    assert asyncio.run(main()) == [None, None]
    [said] = [r.getMessage() for r in caplog.records if "not scored" in r.getMessage()]
    assert "answer" in said


def test_max_turns_is_the_runs_own(make: Any) -> None:
    async def main() -> Any:
        async with make([CALL] * 5) as agent:
            one, two = await asyncio.gather(agent.run(QUESTION, max_turns=1), agent.run(QUESTION, max_turns=2))
            return len(one.trajectories[0].turns), len(two.trajectories[0].turns)

    assert asyncio.run(main()) == (1, 2)


def test_generation_options_reach_the_model(make: Any) -> None:
    async def main() -> Any:
        async with make(["abcdefgh"]) as agent:
            return await agent.run(QUESTION, max_tokens=3, temperature=0.5)

    turn = asyncio.run(main()).trajectories[0].turns[0]
    assert (len(turn.token_ids), turn.finish_reason) == (3, "length")


def test_many_runs_at_once_from_several_loops(make: Any) -> None:
    agent = make()
    found: list[Any] = []

    async def several() -> None:
        found.extend(await asyncio.gather(*(agent.run(QUESTION, max_turns=3) for _ in range(5))))

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(agent.close())
    assert [r.trajectories[0].final_response for r in found] == ["42"] * 15


def test_stream_tells_what_happens_in_order(make: Any) -> None:
    async def main() -> list[Any]:
        async with make() as agent:
            return [event async for event in agent.stream(QUESTION, max_turns=3)]

    events = asyncio.run(main())
    assert [type(e) for e in events] == [ToolEvent, TurnEvent, TurnEvent, FinishedEvent]
    assert (events[0].outcome.name, events[0].outcome.content) == ("double", "42")
    assert (events[2].text, events[2].turn.index) == ("42", 1)
    assert events[3].trajectory.final_response == "42"


def test_leaving_a_stream_ends_its_chains(make: Any, plugins: Plugins) -> None:
    ended: list[Trajectory] = []

    class Observer:
        from agentfly_core import hookimpl

        @hookimpl
        def trajectory_finished(self, trajectory: Trajectory) -> None:
            ended.append(trajectory)

    plugins.observe(Observer())

    async def main() -> None:
        async with make([CALL] * 1000) as agent:
            events = agent.stream(QUESTION, max_turns=1000, num_chains=2)
            async for event in events:
                assert not isinstance(event, FinishedEvent)
                break
            await events.aclose()

    asyncio.run(main())
    assert {t.status for t in ended} <= {ChainStatus.ABORTED}


def test_closing_ends_threads_and_further_runs(make: Any) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        agent = make()
        await agent.run(QUESTION, max_turns=3)
        await agent.close()
        await agent.close()
        with pytest.raises(UsageError, match="closed"):
            await agent.run(QUESTION)

    asyncio.run(main())
    assert {t for t in threading.enumerate() if "agentfly" in t.name} <= before


def test_a_forgotten_agent_is_closed_when_collected(make: Any) -> None:
    before = set(threading.enumerate())
    agent = make()
    asyncio.run(agent.run(QUESTION, max_turns=3))
    assert any("agentfly" in t.name for t in set(threading.enumerate()) - before)
    del agent
    gc.collect()
    assert {t for t in threading.enumerate() if "agentfly" in t.name} <= before


def test_an_agent_forgotten_inside_a_coroutine_is_closed(make: Any) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        agent = make()
        await agent.run(QUESTION, max_turns=3)
        del agent
        gc.collect()
        assert {t for t in threading.enumerate() if "agentfly" in t.name} <= before

    asyncio.run(main())


def test_a_script_that_never_closes_ends(model: Path) -> None:
    parts = Path(__file__).parent.parent / "recipes" / "demo_parts.py"
    script = (
        "import asyncio, sys\n"
        "from agentfly_core import HFAgent\n"
        "from agentfly_core.plugins import Plugins\n"
        "plugins = Plugins.load(); plugins.load_path(sys.argv[2])\n"
        "agent = HFAgent(sys.argv[1], tools=['double'], template='mini', plugins=plugins,\n"
        "                backend_config={'backend': 'scripted', 'turns': ['yes']})\n"
        "result = asyncio.run(agent.run(messages=[{'role': 'user', 'content': 'hm?'}]))\n"
        "print(result.trajectories[0].response)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(model), str(parts)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"AGENTFLY_DISABLE_PLUGINS": "all", "PATH": ""},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("yes\n", "", 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend_config": {"backend": "async_vllm"}}, "unknown backend 'vllm'.*with the backend 'hf'; training"),
        ({"backend_config": {"backend": "scripted", "turn": []}}, "unknown option of backend 'scripted' 'turn'; did"),
        ({"tools": [lambda x: x]}, "is no tool; decorate the function with @tool"),
        ({"tools": ["doubel"]}, "unknown tool 'doubel'; did you mean 'double'"),
        ({"reward": lambda x: x}, "is no reward; decorate the function with @reward"),
        ({"reward": "shrt"}, "unknown reward 'shrt'; did you mean 'short'"),
        ({"template": "minni"}, "unknown template 'minni'; did you mean 'mini'"),
        ({"model_name_or_path": "./none"}, "there is no model folder './none'"),
        ({"agent": "tool-caling"}, "unknown agent"),
        ({"tools": "double"}, "tools must be a list of tools, got 'double'"),
        ({"tools": None}, "tools must be a list of tools, got None"),
        ({"template": None}, "template must be the name of a chat template, got None"),
        ({"backend_config": "hf"}, "backend_config must be a mapping"),
        ({"agent_options": [1]}, "agent_options must be a mapping"),
        ({"timeout": "5"}, "timeout must be a number of seconds, got '5'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_at_once(make: Any, options: dict[str, Any], says: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match=says):
            make(**options) if "model_name_or_path" not in options else HFAgent(**options)


@pytest.mark.parametrize(
    ("messages", "options", "says"),
    [
        ([], {}, "expected a list of messages"),
        ("hello", {}, "expected a list of messages"),
        ([{"messages": []}], {}, r"messages\[0\]: no messages"),
        ([QUESTION, 3], {}, r"messages\[1\]"),
        ([{"role": "user"}], {}, "a role .* and a content"),
        (QUESTION, {"temprature": 1.0}, "unknown generation option 'temprature'; did you mean 'temperature'"),
        (QUESTION, {"temperature": -1}, "temperature must be >= 0"),
        (QUESTION, {"num_chains": 0}, "must be at least 1"),
        (QUESTION, {"num_chains": "2"}, "num_chains must be a whole number, got '2'"),
        (QUESTION, {"max_turns": 2.5}, "max_turns must be a whole number, got 2.5"),
    ],
)
def test_bad_calls(make: Any, messages: Any, options: dict[str, Any], says: str) -> None:
    async def main() -> None:
        async with make() as agent:
            await agent.run(messages, **options)

    with pytest.raises(UsageError, match=says):
        asyncio.run(main())


def test_every_form_of_messages() -> None:
    one = conversation_tasks(QUESTION)
    assert [(t.id, t.messages) for t in one] == [("0", tuple(QUESTION))]
    assert conversation_tasks([QUESTION]) == one
    assert conversation_tasks({"messages": QUESTION}) == one
    two = conversation_tasks([{"messages": QUESTION, "answer": 1}, QUESTION])
    assert [(t.id, t.fields) for t in two] == [("0", {"answer": 1}), ("1", {})]
