"""What the rollout engine itself costs: chains of two turns with one tool call each, over the scripted backend.

    python benchmarks/rollout_overhead.py [--chains 192] [--turns 2] [--tasks 24] [--rounds 10] [--profile]

CPU seconds are those of the whole process, so that the tool's threads count. The template works on characters and the
backend replays ids, so that nothing but the engine, the agent and the tool layer is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Sequence
from typing import Any

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.backends.scripted import ScriptedBackend
from agentfly_core.rollout import Engine
from agentfly_core.tools import tool
from agentfly_core.types import (
    Appended,
    AssistantTurn,
    Generation,
    GenerationRequest,
    History,
    RewardResult,
    Task,
    ToolCall,
    ToolContext,
    Trajectory,
)

CALL, TEXT, END = 5, 6, 0


class NullTemplate:
    """Constant ids: a call while ids say so, text otherwise."""

    name = "null"
    history: Any = "append"
    stop_token_ids = (END,)

    def encode_prompt(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> list[int]:
        return [1] * 35

    def encode_observation(self, messages: Sequence[Any], *, after: Generation) -> list[int]:
        return [2] * 12

    def extend(self, history: History, observation: Sequence[Any], tools: Sequence[Any]) -> Appended:
        return Appended(self.encode_observation(observation, after=history.last))  # type: ignore[arg-type]

    def parse(self, generation: Generation) -> AssistantTurn:
        calls = (ToolCall("add", {"a": 1, "b": 2}),) if generation.token_ids[0] == CALL else ()
        return AssistantTurn("3", calls=calls)

    def decode(self, ids: Sequence[int]) -> str:
        return "3"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class One:
    name = "one"
    fields: frozenset[str] = frozenset()

    async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
        return RewardResult(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=192)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    last = 35 + (options.turns - 1) * 32

    def sample(request: GenerationRequest) -> list[int]:
        return [TEXT if len(request.prompt_ids) >= last else CALL, *[7] * 18, END]

    backend = ScriptedBackend(sample)
    tasks = [Task(f"t{i}", ({"role": "user", "content": "?"},)) for i in range(options.tasks)]
    with Engine(
        agent=ToolCallingAgent(), template=NullTemplate(), backend=backend, tools=[add], reward=One(), max_turns=64
    ) as engine:
        profile = cProfile.Profile()
        if options.profile:
            engine._thread.submit(_switch(profile.enable)).result()
        costs = []
        for number in range(options.rounds):
            backend.requests.clear()
            started = time.process_time()
            finished = list(engine.run(tasks, chains=options.chains // options.tasks, label=str(number)))
            costs.append(time.process_time() - started)
            assert all(len(t.turns) == options.turns and t.scored for t in finished)
        if options.profile:
            engine._thread.submit(_switch(profile.disable)).result()
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    best = min(costs)
    turns = len(finished) * options.turns
    print(f"{len(finished)} chains x {options.turns} turns: {best:.4f} CPU s (best of {options.rounds})")
    print(f"{len(finished) / best:.0f} chains per CPU second, {best / turns * 1e6:.0f} us a turn")


async def _switch(function: Any) -> None:
    await asyncio.sleep(0)
    function()


if __name__ == "__main__":
    main()
