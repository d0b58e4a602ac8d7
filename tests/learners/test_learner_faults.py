"""What tools do to their chains reaches neither the other chains of a training step nor the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

from agentfly_core.recipes.load import load_recipe  # noqa: E402
from agentfly_core.runs import RunFolder, read_trajectories  # noqa: E402
from agentfly_core.types import ChainStatus, Trajectory  # noqa: E402

PARTS = '''
import asyncio
import time

from agentfly_core import hookimpl, tool
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.types import CallTools, Finish, ToolCall

KINDS = tuple("raises exits hangs stalls blocks blocks_its_loop floods junk cancels_itself cancels_its_task".split())


@tool
def fine() -> str:
    """Works."""
    return "ok"


@tool
def raises() -> str:
    """Raises an error that does not even have a text."""

    class Mute(Exception):
        def __str__(self):
            raise ValueError

    raise Mute


@tool
def exits() -> str:
    """Ends the interpreter, if it is let."""
    raise SystemExit(1)


@tool(timeout=0.2)
async def hangs() -> str:
    """Does not end by its timeout."""
    await asyncio.Event().wait()
    return ""


@tool(timeout=600.0)
async def stalls() -> str:
    """Does not end by the chain's timeout."""
    await asyncio.Event().wait()
    return ""


@tool(timeout=0.2)
def blocks() -> str:
    """Keeps its thread."""
    time.sleep(2.0)
    return ""


@tool(timeout=0.2)
async def blocks_its_loop() -> str:
    """Awaits nothing."""
    time.sleep(2.0)
    return ""


@tool
def floods() -> str:
    """Returns 10 MB."""
    return "x" * 10_000_000


@tool
def junk() -> object:
    """Returns what cannot be shown."""
    return object()


@tool
async def cancels_itself() -> str:
    """Raises what a cancellation raises."""
    raise asyncio.CancelledError


@tool
async def cancels_its_task() -> str:
    """Is cancelled from within."""
    asyncio.current_task().cancel()
    await asyncio.sleep(60)
    return ""


class Faulty(ToolCallingAgent):
    """Chain n of a task calls the n-th tool in its first turn, whatever the model says; the rest call ``fine``."""

    name = "faulty"

    def __init__(self, faults=True):
        super().__init__()
        self.faults = faults

    def decide(self, turn, tools, context):
        if context.turn or context.split == "eval":
            return Finish(turn.content)
        number = context.chain_index
        name = KINDS[number] if self.faults and number < len(KINDS) else "fine"
        return CallTools((ToolCall(name, {}),))


@hookimpl
def register_agents(register):
    register(Faulty)
'''

KINDS = (
    "raises",
    "exits",
    "hangs",
    "stalls",
    "blocks",
    "blocks_its_loop",
    "floods",
    "junk",
    "cancels_itself",
    "cancels_its_task",
)
CHAINS = len(KINDS) + 4
ENDED = (ChainStatus.COMPLETED, ChainStatus.MAX_TOKENS)
"""How a second turn ends: a random model seldom stops before its limit."""


@pytest.fixture
def run(tmp_path: Path, model_folder: Path, plugin_file: Path) -> Any:
    """A function that trains one step, with faults or without, and returns the folder and the step's chains."""
    (tmp_path / "parts.py").write_text(PARTS)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Say {i}", "id": f"t{i}"}) + "\n" for i in range(2)))

    def run(
        *, faults: bool, deterministic: bool, history: str = "append"
    ) -> tuple[RunFolder, dict[tuple[str, int], Trajectory]]:
        recipe = {
            "seed": 1,
            "plugins": [str(plugin_file), str(tmp_path / "parts.py")],
            "model": {"path": str(model_folder), "template": "plain", "device": "cpu", "history": history},
            "agent": {"name": "faulty", "tools": ["fine", *KINDS], "max_turns": 2, "options": {"faults": faults}},
            "data": {"train": str(data), "eval": str(data)},
            "rewards": ["letters"],
            "rollout": {"max_tokens_per_turn": 6, "timeout": 8.0},
            "train": {"steps": 1, "tasks_per_step": 2, "chains_per_task": CHAINS, "optimizer": {"lr": 0.003}},
            "evaluation": {"tasks": 2, "before": False},
            "run": {"root": str(tmp_path / "runs")},
            "deterministic": deterministic,
        }
        loaded = load_recipe(recipe)
        folder = RunFolder.create(loaded.recipe.run.root, "faults", loaded.resolved())
        loaded.check_training().train(loaded, folder)
        chains = [t for t in read_trajectories(folder.path) if t.split == "train"]
        return folder, {(t.task.id, t.chain_index): t for t in chains}

    return run


@pytest.mark.parametrize("deterministic", [False, True], ids=["free", "waves"])
def test_a_step_with_every_fault_is_whole(run: Any, deterministic: bool) -> None:
    folder, chains = run(faults=True, deterministic=deterministic)
    assert folder.status().state == "finished"
    (line,) = folder.metrics.read()
    assert (line["optim/steps"], line["optim/skipped"], line["logp/nonfinite"]) == (1.0, 0.0, 0.0)
    assert line["logp/max_abs_diff"] < 1e-4
    assert line["eval/sampled/unscored"] == 0.0
    assert len(chains) == 2 * CHAINS

    stalled = KINDS.index("stalls")
    for (_, number), chain in chains.items():
        if number == stalled:
            assert (chain.status, chain.scored) == (ChainStatus.TIMEOUT, False)
        elif number < len(KINDS) and KINDS[number] == "floods":
            assert (chain.status, chain.scored) == (ChainStatus.MAX_TOKENS, True)
        else:
            assert (chain.status in ENDED, chain.scored, len(chain.turns)) == (True, True, 2)
    assert line["chains/unscored"] == pytest.approx(1 / CHAINS)
    assert line["group/incomplete"] == 2.0

    said = [chains["t0", n].turns[0].outcomes for n in range(len(KINDS)) if n != stalled]
    assert [outcome.status.value for (outcome,) in said] == [
        "failed",
        "failed",
        "timed_out",
        "timed_out",
        "timed_out",
        "ok",
        "failed",
        "failed",
        "failed",
    ]

    # The chains without a fault are those of a step in which nothing goes wrong.
    _, healthy = run(faults=False, deterministic=deterministic)
    for key, chain in chains.items():
        if key[1] >= len(KINDS):
            assert [s.token_ids for s in chain.segments] == [s.token_ids for s in healthy[key].segments]
            assert (chain.reward, chain.turn_rewards) == (healthy[key].reward, healthy[key].turn_rewards)


def test_chains_of_several_segments_train(run: Any) -> None:
    folder, chains = run(faults=False, deterministic=True, history="template")
    (line,) = folder.metrics.read()
    assert (line["optim/steps"], line["chains/segments"]) == (1.0, 2.0)
    assert line["logp/max_abs_diff"] < 1e-4
    for chain in chains.values():
        first, second = chain.segments
        assert [span.turn for s in (first, second) for span in s.spans] == [0, 1]
        sent = [*first.token_ids[first.prompt_len :]]
        assert sent == list(chain.turns[0].token_ids)
        assert second.token_ids[: len(first.token_ids)] != first.token_ids  # the old turn was rewritten
