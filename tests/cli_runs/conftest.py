from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from agentfly_core.cli import cli

RECIPES = Path(__file__).parent.parent / "recipes"
Run = Callable[..., Result]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with a recipe, its data, its own plugin file and a model folder; the stub learner trains it."""
    pytest.importorskip("tokenizers")
    runpy.run_path(str(RECIPES / "demo_model.py"))["write_tokenizer"](tmp_path / "model")
    lines = [json.dumps({"prompt": f"what is {n}?", "answer": str(n)}) for n in range(8)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "demo_parts.py").write_text((RECIPES / "demo_parts.py").read_text())
    recipe: dict[str, Any] = {
        "name": "demo",
        "plugins": ["demo_parts.py"],
        "model": {"path": "model", "template": "mini"},
        "agent": {"tools": ["double"]},
        "data": {"train": "train.jsonl", "eval": "train.jsonl"},
        "rewards": ["is_right"],
        "rollout": {"backend": {"name": "scripted", "options": {"turns": [
            '<tool_call>\n{"name": "double", "arguments": {"x": 2}}\n</tool_call>', "4"]}}},
        "algorithm": "stub",
        "learner": "stub",
        "train": {"steps": 4, "tasks_per_step": 4, "chains_per_task": 2},
        "evaluation": {"modes": ["sampled", "greedy"]},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a command: the built-ins alone, whatever is installed."""
    return {**os.environ, "AGENTFLY_DISABLE_PLUGINS": "all", "COLUMNS": "120"}


@pytest.fixture
def agentfly(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the workspace, in this process."""
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return run


@pytest.fixture
def start(workspace: Path, environment: dict[str, str]) -> Callable[..., subprocess.Popen[str]]:
    """Start a real process in the workspace."""

    def popen(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "agentfly_core", *arguments]
        return subprocess.Popen(
            command, cwd=workspace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return popen
