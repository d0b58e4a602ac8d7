from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentfly_core.plugins import Plugins

PARTS = Path(__file__).parent / "demo_parts.py"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The built-ins alone, whatever is installed."""
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    return Plugins.load()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder that only has a tokenizer."""
    pytest.importorskip("tokenizers")
    write = runpy.run_path(str(Path(__file__).parent / "demo_model.py"))["write_tokenizer"]
    folder: Path = write(tmp_path / "model")
    return folder


@pytest.fixture
def basic(tmp_path: Path) -> dict[str, Any]:
    """A small recipe as data, with its files."""
    (tmp_path / "model").mkdir(exist_ok=True)
    lines = [json.dumps({"prompt": f"what is {n}?", "answer": str(n)}) for n in range(10)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "demo_parts.py").write_text(PARTS.read_text())
    return {
        "plugins": ["demo_parts.py"],
        "model": {"path": "model", "template": "mini"},
        "agent": {"tools": ["double"]},
        "data": {"train": "train.jsonl", "eval": "train.jsonl"},
        "rewards": ["is_right"],
        "train": {"tasks_per_step": 4, "chains_per_task": 2},
    }


@pytest.fixture
def write_recipe(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    def write(data: dict[str, Any]) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return write
