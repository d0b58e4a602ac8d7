from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.load import LoadedRecipe, load_recipe

Load = Callable[..., LoadedRecipe]


@pytest.fixture(scope="session", autouse=True)
def openrlhf() -> None:
    """Only the source is read, so `pip install --no-deps openrlhf==0.11.2` is enough."""
    if importlib.util.find_spec("openrlhf") is None:
        pytest.skip("openrlhf is not installed: pip install --no-deps openrlhf==0.11.2")


@pytest.fixture(scope="session")
def plugins() -> Plugins:
    return Plugins.load()


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    lines = [f'{{"id": "q{n}", "prompt": "what is {n} + 1?", "answer": {n + 1}}}' for n in range(300)]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "questions.jsonl"


@pytest.fixture(scope="session")
def recipe(questions: Path) -> dict[str, Any]:
    """A recipe that OpenRLHF can train on 8 GPUs."""
    return {
        "name": "demo",
        "model": {"path": "org/model", "template": "qwen2.5"},
        "agent": {"tools": ["calculator"]},
        "data": {"train": str(questions), "eval": str(questions)},
        "rewards": ["numeric_match"],
        "rollout": {"max_tokens": 4096},
        "algorithm": "grpo",
        "learner": {"name": "openrlhf", "options": {"gpus_per_node": 8}},
    }


@pytest.fixture(scope="session")
def load(recipe: dict[str, Any], plugins: Plugins) -> Load:
    """The recipe with key=value overrides; options of the learner may be given without their beginning."""

    def load(*overrides: str, **options: Any) -> LoadedRecipe:
        own = {**recipe["learner"]["options"], **{name.rstrip("_"): value for name, value in options.items()}}
        changed = {**recipe, "learner": {"name": "openrlhf", "options": own}}
        return load_recipe(changed, overrides, plugins=plugins)

    return load
