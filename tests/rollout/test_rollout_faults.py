"""Whatever a tool, reward, backend, agent or observer does, its chain ends typed and the others stay whole."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.tools import tool
from agentfly_core.types import (
    ChainStatus,
    Generation,
    ResourceError,
    RewardResult,
    ToolContext,
    ToolOutcome,
    ToolResult,
    ToolStatus,
)

C = ChainStatus


@tool
def fine(x: int = 1) -> int:
    """Works."""
    return x


@tool
def raises() -> str:
    """Raises."""
    raise KeyError("x")


@tool
async def exits() -> str:
    """Exits."""
    raise SystemExit(3)


@tool
async def cancels_itself() -> str:
    """Cancels itself."""
    raise asyncio.CancelledError


@tool(timeout=0.2)
async def hangs() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


@tool(timeout=0.2)
def blocks() -> str:
    """Blocks its thread."""
    time.sleep(1.0)
    return ""


@tool(max_output_chars=20_000_000)
def floods() -> str:
    """Returns 10 MB."""
    return "x" * 10_000_000


@tool
def junk() -> Any:
    """Returns what cannot be shown."""
    return object()


@tool
def done(value: str) -> ToolResult:
    """Ends the chain."""
    return ToolResult(value, final=True, metrics={"length": len(value)})


class Raw:
    """A tool that keeps none of the promises: its ``call`` is the given coroutine function."""

    description = ""
    exclusive = False

    def __init__(self, name: str, call: Any, *, exclusive: bool = False) -> None:
        self.name = name
        self.parameters: dict[str, Any] = {}
        self.exclusive = exclusive
        self._call = call

    def schema(self) -> Any:
        return {"type": "function", "function": {"name": self.name}}

    def check_arguments(self, arguments: Any) -> Any:
        return arguments

    async def call(self, arguments: Any, context: ToolContext) -> Any:
        return await self._call(arguments, context)


async def _raise_exit(arguments: Any, context: Any) -> Any:
    raise SystemExit(1)


async def _exit_in_a_task(arguments: Any, context: Any) -> Any:
    async def leave() -> None:
        raise SystemExit(1)

    task = asyncio.ensure_future(leave())
    await asyncio.sleep(0.01)
    assert task.done()
    return ToolOutcome("exit_in_a_task", ToolStatus.OK, "still here")


async def _return_none(arguments: Any, context: Any) -> Any:
    return None


async def _cancelled(arguments: Any, context: Any) -> Any:
    raise asyncio.CancelledError


async def _stubborn(arguments: Any, context: Any) -> Any:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            continue


def test_each_fault_is_an_outcome_and_the_other_chains_stay_whole(kit: Any) -> None:
    tools = [fine, raises, exits, cancels_itself, hangs, blocks, floods, junk]
    tools += [
        Raw("raw_exit", _raise_exit),
        Raw("exit_in_a_task", _exit_in_a_task),
        Raw("none", _return_none),
        Raw("cancelled", _cancelled),
    ]
    names = [t.name for t in tools]
    backend = kit.scripted(lambda r: "bye" if kit.turn_number(r) else f"!{names[r.chain_key[1]]} {{}}")
    with kit.engine(backend, tools=tools, max_tokens=5000) as engine:
        found = {t.chain_index: t for t in engine.run([kit.task()], chains=len(tools))}
    outcomes = {names[i]: t.turns[0].outcomes[0] for i, t in found.items()}
    assert {name: outcome.status.value for name, outcome in outcomes.items()} == {
        "fine": "ok",
        "raises": "failed",
        "exits": "failed",
        "cancels_itself": "failed",
        "hangs": "timed_out",
        "blocks": "timed_out",
        "floods": "ok",
        "junk": "failed",
        "raw_exit": "failed",
        "exit_in_a_task": "ok",
        "none": "failed",
        "cancelled": "failed",
    }
    assert found.pop(names.index("floods")).status is C.MAX_TOKENS
    assert all(t.status is C.COMPLETED and t.scored and len(t.turns) == 2 for t in found.values())
    assert outcomes["raises"].content == "Error: KeyError: 'x'"
    assert (
        outcomes["none"].content
        == "Error: tool 'none' failed: TypeError: its call returned NoneType, not a ToolOutcome"
    )
    assert "SystemExit" in str(outcomes["raw_exit"].content)


@pytest.mark.parametrize("turn", ["!lacks {}", "!lacks {}\n!slow {}", "!slow {}\n!lacks {}\n!lacks {}"])
def test_a_tool_without_its_resource_ends_its_chain_unscored_and_no_other(kit: Any, turn: str) -> None:
    ended: list[str] = []

    @tool
    async def lacks() -> str:
        """Needs what cannot be had."""
        raise ResourceError("no engine answers")

    @tool
    async def slow() -> str:
        """Ends later."""
        await asyncio.sleep(0.05)
        ended.append("slow")
        return ""

    backend = kit.scripted(lambda r: "bye" if kit.turn_number(r) or r.chain_key[1] else turn)
    with kit.engine(backend, tools=[lacks, slow]) as engine:
        failed, whole = sorted(engine.run([kit.task()], chains=2), key=lambda t: t.chain_index)
        assert ended == ["slow"] * turn.count("slow")  # nothing runs on beside an ended chain
    assert (failed.status, failed.error) == (C.ENVIRONMENT_ERROR, "no engine answers")
    assert not failed.scored
    assert (whole.status, whole.scored) == (C.COMPLETED, True)


def test_errors_among_the_calls_keep_their_place(kit: Any) -> None:
    turn = '!fine {"x": 1}\n!fine {"x":\n!nothing {}\n!fine {"x": "y"}\n!fine {"x": 2}'
    trajectory = kit.play(kit.scripted(turn, "bye"), tools=[fine])
    outcomes = trajectory.turns[0].outcomes
    assert [o.status.value for o in outcomes] == ["ok", "malformed", "unknown_tool", "invalid_arguments", "ok"]
    assert [m["content"] for m in trajectory.turns[0].observation] == [o.content for o in outcomes]
    assert [outcomes[0].content, outcomes[4].content] == ["1", "2"]
    assert outcomes[2].name == "nothing"


def test_calls_run_together_unless_one_is_exclusive(kit: Any) -> None:
    log: list[str] = []
    both = asyncio.Event()

    async def meet(arguments: Any, context: Any) -> ToolOutcome:
        log.append("meet")
        if log.count("meet") == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 10)
        log.append("met")
        return ToolOutcome("meet", ToolStatus.OK, "")

    async def alone(arguments: Any, context: Any) -> ToolOutcome:
        log.append("alone")
        await asyncio.sleep(0.02)
        log.append("left")
        return ToolOutcome("alone", ToolStatus.OK, "")

    tools = [Raw("meet", meet), Raw("alone", alone, exclusive=True)]
    kit.play(kit.scripted("!meet {}\n!meet {}\n!alone {}\n!alone {}\n!meet {}", "bye"), tools=tools)
    assert log == ["meet", "meet", "met", "met", "alone", "left", "alone", "left", "meet", "met"]


def test_a_tool_that_ignores_its_cancellation_is_left_behind(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_core.rollout.scope.GRACE_SECONDS", 0.1)
    trajectory = kit.play(kit.scripted("!stubborn {}"), tools=[Raw("stubborn", _stubborn)], chain_timeout=0.2)
    assert trajectory.status is C.TIMEOUT
    assert trajectory.seconds < 4


def test_a_final_result_ends_the_chain(kit: Any) -> None:
    trajectory = kit.play(kit.scripted('!done {"value": "four"}\n!done {"value": "six"}', "never"), tools=[done])
    assert (trajectory.status, trajectory.final_response, trajectory.response) == (C.COMPLETED, "four", "four")
    assert trajectory.metrics == {"length": 3.5}
    assert trajectory.turns[0].observation == ()


def test_a_chain_that_uses_up_its_turns_still_acts(kit: Any) -> None:
    trajectory = kit.play(kit.scripted("!fine {}", "!fine {}", "never"), tools=[fine], max_turns=2)
    assert (trajectory.status, trajectory.scored, trajectory.reward) == (C.MAX_TURNS, True, 1.0)
    assert trajectory.turn_rewards == (0.0, 1.0)
    assert trajectory.turns[1].outcomes[0].content == "1"
    assert trajectory.turns[1].observation == ()
    assert trajectory.final_response is None
    assert trajectory.response == "!fine {}"


def test_a_cut_answer_is_max_tokens_and_scored(kit: Any) -> None:
    trajectory = kit.play(kit.scripted(kit.backend_turn("it is 4 an", cut=True)))
    assert (trajectory.status, trajectory.scored, trajectory.final_response) == (C.MAX_TOKENS, True, "it is 4 an")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "gave a number that is not finite"),
        (RewardResult(1.0, {"part": float("inf")}), "gave a number that is not finite"),
        (RewardResult(1.0, turn_rewards=(1.0, 2.0)), "gave 2 turn rewards for 1 turns"),
        (None, "returned NoneType, not a RewardResult"),
        (RewardResult("1"), "failed: TypeError"),  # type: ignore[arg-type]
        (ZeroDivisionError("oh"), "failed: ZeroDivisionError: oh"),
        (SystemExit(2), "failed: Contained: SystemExit: 2"),
        (asyncio.CancelledError(), "failed: Contained: reward 'fixed' was cancelled"),
    ],
)
def test_a_reward_that_fails_leaves_its_chain_unscored(kit: Any, value: Any, reason: str) -> None:
    def score(trajectory: Any, context: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    trajectory = kit.play(kit.scripted("hi"), reward=kit.FixedReward(score))
    assert trajectory.status is C.COMPLETED
    assert (trajectory.scored, trajectory.reward, trajectory.turn_rewards) == (False, 0.0, (0.0,))
    assert trajectory.unscored_reason.startswith(f"reward 'fixed' {reason}")


def test_a_reward_that_hangs_is_given_up(kit: Any) -> None:
    reward = kit.FixedReward(lambda trajectory, context: asyncio.Event().wait())
    trajectory = kit.play(kit.scripted("hi"), reward=reward, reward_timeout=0.2)
    assert trajectory.unscored_reason == "reward 'fixed' failed: TimeoutError: reward 'fixed' took longer than 0.2 s"


def test_turn_rewards_are_the_rewards_own_or_the_score_on_the_last_turn(kit: Any) -> None:
    script = ("!fine {}", "!fine {}", "bye")
    own = kit.FixedReward(lambda t, c: RewardResult(2.0, {"a": 2.0}, turn_rewards=(0.5, 0.5, 1.0)))
    trajectory = kit.play(kit.scripted(*script), tools=[fine], reward=own)
    assert (trajectory.turn_rewards, trajectory.components) == ((0.5, 0.5, 1.0), {"a": 2.0})
    assert kit.play(kit.scripted(*script), tools=[fine]).turn_rewards == (0.0, 0.0, 1.0)


def test_without_a_reward_a_chain_is_not_scored(kit: Any) -> None:
    trajectory = kit.play(kit.scripted("hi"), reward=None)
    assert (trajectory.scored, trajectory.unscored_reason) == (False, "no reward")
    assert trajectory.turn_rewards == (0.0,)


def _failing_backends(kit: Any) -> dict[str, Any]:
    class Broken:
        weight_version = 0
        max_model_len = None

        def __init__(self, answer: Any) -> None:
            self._answer = answer

        async def generate(self, request: Any) -> Any:
            if isinstance(self._answer, BaseException):
                raise self._answer
            return self._answer

    many = tuple(range(20, 1020))
    return {
        "CUDA is gone": Broken(RuntimeError("CUDA is gone")),
        "SystemExit": Broken(SystemExit(4)),
        "was cancelled": Broken(asyncio.CancelledError()),
        "has no attribute": Broken(None),
        "not finite": Broken(Generation((20,), (float("nan"),), "stop")),
        "the backend aborted": Broken(Generation((20,), (-1.0,), "abort")),
        "1000 tokens where 512": Broken(Generation(many, (-1.0,) * 1000, "length")),
    }


@pytest.mark.parametrize("error", sorted(_failing_backends(None)))
def test_a_backend_that_fails_aborts_the_chain(kit: Any, error: str) -> None:
    trajectory = kit.play(_failing_backends(kit)[error])
    assert (trajectory.status, trajectory.scored) == (C.ABORTED, False)
    assert error in trajectory.error
    assert trajectory.unscored_reason == "the chain was aborted"


@pytest.mark.parametrize("method", ["start", "decide", "observe"])
def test_an_agent_that_raises_aborts_its_chain_and_says_where(kit: Any, method: str) -> None:
    class Failing(ToolCallingAgent):
        pass

    def fail(self: Any, *arguments: Any) -> Any:
        raise LookupError("lost")

    setattr(Failing, method, fail)
    trajectory = kit.play(kit.scripted("!fine {}"), agent=Failing(), tools=[fine])
    assert trajectory.status is C.ABORTED
    assert trajectory.error.startswith("LookupError: lost (in fail, ")
    assert len(trajectory.turns) == (0 if method == "start" else 1)
    assert len(trajectory.turn_rewards) == len(trajectory.turns)


def test_an_agent_that_decides_on_nothing_is_told_so(kit: Any) -> None:
    class Odd(ToolCallingAgent):
        def decide(self, *arguments: Any) -> Any:
            return "left"

    assert "is no Decision" in kit.play(kit.scripted("hi"), agent=Odd()).error


def test_observers_see_each_chain_and_one_that_raises_hurts_nobody(kit: Any) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    script = ("!fine {}", "bye")
    kit.play(kit.scripted(*script), tools=[fine], notify=lambda hook, **arguments: seen.append((hook, arguments)))
    names = [name for name, _ in seen]
    assert names == ["rollout_started", "tool_called", "turn_finished", "turn_finished", "trajectory_finished"]
    assert set(seen[0][1]) == {"task", "chain_index", "group", "split"}
    assert set(seen[1][1]) == {"task", "chain_index", "group", "turn", "outcome"}
    assert set(seen[2][1]) == {"task", "chain_index", "group", "turn"}
    assert seen[2][1]["turn"].observation[0]["content"] == "1"
    assert seen[4][1]["trajectory"].scored
    calls: list[str] = []

    def bad(hook: str, **arguments: Any) -> None:
        calls.append(hook)
        raise RuntimeError("observer")

    assert kit.play(kit.scripted(*script), tools=[fine], notify=bad).status is C.COMPLETED
    assert calls == ["rollout_started"]


def test_what_a_tool_enters_into_the_scope_lives_until_the_score(kit: Any) -> None:
    log: list[str] = []

    class Held:
        async def __aenter__(self) -> None:
            log.append("entered")

        async def __aexit__(self, *error: Any) -> None:
            log.append("left")
            raise RuntimeError("cannot be given back")

    @tool
    async def hold(context: ToolContext) -> str:
        """Hold something for the chain."""
        assert context.scope is not None
        await context.scope.enter_async_context(Held())
        context.state["held"] = True
        return "held"

    def score(trajectory: Any, context: ToolContext) -> float:
        log.append(f"scored {context.state['held']}")
        return 1.0

    assert kit.play(kit.scripted("!hold {}", "bye"), tools=[hold], reward=kit.FixedReward(score)).scored
    assert log == ["entered", "scored True", "left"]


def test_two_thousand_chains_with_random_faults(kit: Any) -> None:
    """Every future resolves, and nothing is left: no task, no thread, no open chain."""
    tools = [
        fine,
        raises,
        exits,
        cancels_itself,
        junk,
        done,
        Raw("raw_exit", _raise_exit),
        Raw("none", _return_none),
        Raw("cancelled", _cancelled),
    ]

    def sample(request: Any) -> Any:
        group, index, _ = request.chain_key
        dice = random.Random(f"{group}{index}{kit.turn_number(request)}")
        kind = dice.random()
        if kind < 0.05:
            return kit.backend_turn(error=RuntimeError("no more memory"))
        if kind < 0.1:
            return kit.backend_turn("cut of", cut=True)
        if kind < 0.3:
            return "bye"
        calls = [dice.choice([*(t.name for t in tools), "unknown"]) for _ in range(dice.randint(1, 3))]
        arguments = dice.choice(["{}", '{"value": "x"}', "{", "[]"])
        return "\n".join(f"!{name} {arguments}" for name in calls)

    def score(trajectory: Any, context: Any) -> Any:
        value = random.Random(f"{trajectory.group}{trajectory.chain_index}").random()
        if value < 0.1:
            raise ValueError("cannot score")
        return float("nan") if value < 0.2 else value

    threads = set(threading.enumerate())
    with kit.engine(kit.scripted(sample), tools=tools, reward=kit.FixedReward(score), max_turns=4) as engine:
        futures = [engine.submit(kit.task(n // 8), n % 8, f"g{n // 8}") for n in range(2000)]
        cancelled = [f for n, f in enumerate(futures) if n % 17 == 0 and f.cancel()]
        found = [f.result(60) for f in futures if not f.cancelled()]
        kit.wait_until(lambda: not engine._open)
        assert engine._thread.submit(_tasks_left()).result() == 0
    assert len(found) + len(cancelled) == 2000
    assert {t.status for t in found} == {C.COMPLETED, C.MAX_TURNS, C.MAX_TOKENS, C.ABORTED}
    for trajectory in found:
        assert len(trajectory.turn_rewards) == len(trajectory.turns)
        assert sum(len(t.token_ids) for t in trajectory.turns) == trajectory.sampled_tokens
        assert trajectory.scored == (trajectory.unscored_reason is None)
    # The loop of asynchronous tools is the process's, and stays.
    kit.wait_until(lambda: {t for t in threading.enumerate() if t.name != "agentfly-calls"} <= threads)


async def _tasks_left() -> int:
    await asyncio.sleep(0.05)
    return len(asyncio.all_tasks()) - 1
