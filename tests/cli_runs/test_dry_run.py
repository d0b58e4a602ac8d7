from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from agentfly_core.cli.dry_run import show_plan

Run = Callable[..., Result]


def test_a_dry_run_checks_and_writes_nothing(agentfly: Run, workspace: Path) -> None:
    before = sorted(workspace.rglob("*"))
    done = agentfly("train", "recipe.yaml", "--dry-run")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:2] == ["recipe: demo", "learner: stub"]
    assert "nothing was started" in done.stdout
    assert sorted(workspace.rglob("*")) == before


def test_a_dry_run_refuses_what_training_refuses(agentfly: Run) -> None:
    done = agentfly("train", "recipe.yaml", "rewards=[]", "--dry-run")
    assert done.exit_code == 2
    assert "rewards: training needs at least one" in done.output


def test_a_dry_run_needs_not_what_trains(agentfly: Run) -> None:
    done = agentfly("train", "recipe.yaml", "learner.options.lacks=ray", "--dry-run")
    assert done.exit_code == 0, done.output


class Planner:
    def dry_run(self, recipe: Any) -> dict[str, Any]:
        return {
            "gpus": {"nodes": 2, "roles": [{"role": "policy", "share": 0.123456789, "of": None, "pair": (1, 2.5)}]},
            "notes": ["one", "two"],
            "warnings": [],
        }


def test_plans_are_shown_as_tables_with_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    loaded: Any = SimpleNamespace(recipe=SimpleNamespace(name="demo", learner=SimpleNamespace(name="planner")))
    planner: Any = Planner()
    show_plan(loaded, planner, as_json=False)
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shown[:6] == ["recipe: demo", "learner: planner", "", "gpus", "nodes: 2", ""]
    assert shown[6:9] == ["roles", "role    share        of  pair", "policy  0.123456789  -   1 2.5"]
    assert shown[9:13] == ["", "notes", "- one", "- two"]
    assert "warnings" not in shown
    show_plan(loaded, planner, as_json=True)
    assert json.loads(capsys.readouterr().out)["gpus"]["roles"][0]["share"] == 0.123456789


@pytest.mark.torch
def test_the_local_learner_says_how_much_it_would_do(agentfly: Run) -> None:
    pytest.importorskip("torch")
    options = ("train.steps=12", "train.epochs=2", "train.minibatches=2", "evaluation.every=5", "model.device=cpu")
    done = agentfly("train", "recipe.yaml", "learner=local", "algorithm=grpo", *options, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert {name: plan[name] for name in ("device", "reference_model", "steps", "chains_per_step")} == {
        "device": "cpu",
        "reference_model": False,
        "steps": 12,
        "chains_per_step": 8,
    }
    assert plan["optimizer_steps"] == 48
    assert plan["evaluations"] == 4, "before, after steps 5 and 10, and at the end"
