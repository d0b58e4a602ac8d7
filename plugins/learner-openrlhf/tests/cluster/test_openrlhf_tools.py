"""Tools that fail and hang on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.types import ToolStatus

pytestmark = pytest.mark.e2e

TOOLS = '''
import asyncio
import itertools

from agentfly_core import tool
from agentfly_core.tools.calculator import evaluate

CALLS = itertools.count()

@tool(name="calculator", timeout=2)
async def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % ** ( ) and functions such as sqrt, abs, min, max, round, log, sin.
    """
    number = next(CALLS) % 10
    if number == 2:
        raise RuntimeError("out of order")
    if number == 4:
        await asyncio.Event().wait()
    return str(evaluate(expression))
'''


def test_a_failing_and_a_hanging_tool(agentfly: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shaky.py").write_text(TOOLS)
    run = agentfly(
        "tiny:calculator",
        options={"gpus_per_node": 2},
        plugins=[str(tmp_path / "shaky.py")],
        agent__tools=["shaky:calculator"],
        train__steps=2,
        train__tasks_per_step=8,
        train__chains_per_task=8,
        run__checkpoint_every=0,
        evaluation={"before": False, "after": False},
    )
    assert run.wait() == 0, run.said()
    metrics, chains = run.metrics(), run.chains()
    assert [row["optim/steps"] for row in metrics] == [1, 1]
    for step, row in enumerate(metrics, 1):
        outcomes = Counter(
            outcome.status
            for chain in chains
            if chain.group.startswith(f"step-{step}/")
            for turn in chain.turns
            for outcome in turn.outcomes
        )
        assert outcomes[ToolStatus.OK] > 0
        assert outcomes[ToolStatus.FAILED] > 0
        assert outcomes[ToolStatus.TIMED_OUT] > 0
        failed = sum(outcomes.values()) - outcomes[ToolStatus.OK]
        assert row["tools/failed_share"] == pytest.approx(failed / sum(outcomes.values()))
    assert len(chains) == 2 * 64
    assert all(chain.scored for chain in chains)
