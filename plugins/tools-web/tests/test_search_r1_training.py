"""The tiny model learns to search within its answer, over real questions and passages."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("agentfly_models_tiny")
pytestmark = pytest.mark.torch

from agentfly_tools_web.hotpotqa import prepare  # noqa: E402

from agentfly_core.learners.local import LocalLearner  # noqa: E402
from agentfly_core.learners.sft import run_sft  # noqa: E402
from agentfly_core.recipes.load import LoadedRecipe, load_recipe  # noqa: E402
from agentfly_core.runs import RunFolder, read_trajectories  # noqa: E402

DATA = Path(os.environ.get("AGENTFLY_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
REAL = DATA / "hotpotqa" / "distractor_60.json"
BREVITY = """
from agentfly_core import reward


@reward
def brevity(trajectory) -> float:
    return 1 / (1 + trajectory.sampled_tokens)
"""
FOUND = "\n\n<information>[1] A\nB</information>\n\n"


def demonstrations(questions: Path, file: Path) -> None:
    """How the tags are used, which the tiny model has never seen; what it searches and answers is of no matter."""
    rows = []
    for number, line in enumerate(questions.read_text(encoding="utf-8").splitlines()[:20]):
        word = ("river", "band")[number % 2]
        messages = [
            {"role": "user", "content": json.loads(line)["prompt"]},
            {"role": "assistant", "content": f"<search>{word}</search>"},
            {"role": "user", "content": FOUND},
            {"role": "assistant", "content": f"<answer>{word}</answer>"},
        ]
        rows.append({"messages": messages})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The packaged recipe in small, by a function that takes overrides."""
    if not REAL.is_file():
        pytest.skip(f"{REAL} is missing; set AGENTFLY_TEST_DATA")
    folder = tmp_path_factory.mktemp("hotpotqa")
    prepare(REAL, folder)
    demonstrations(folder / "train.jsonl", folder / "demonstrations.jsonl")
    (folder / "brevity.py").write_text(BREVITY)
    retrieve = "{name: retrieve, options: {index: index, k: 1, max_chars: 60}}"
    muon = "{name: muon, lr: 3.0e-3, warmup_steps: 4, schedule: linear, final_lr_fraction: 0.1}"
    small = [
        "plugins=[brevity.py]",
        "model={path: tiny, template: qwen2.5, device: cpu}",
        f"agent={{name: search-r1, tools: [{retrieve}], max_turns: 3, system_prompt: Search.}}",
        "rewards=[qa_f1, brevity]",
        "rollout={max_tokens_per_turn: 32, max_tokens: 512}",
        "train={steps: 3, tasks_per_step: 3, chains_per_task: 4, optimizer: {lr: 1.0e-4}}",
        "evaluation={tasks: 4, modes: [greedy]}",
        f"sft={{data: demonstrations.jsonl, steps: 40, batch_size: 10, optimizer: {muon}}}",
        f"run={{root: {folder / 'runs'}, checkpoint_every: 2}}",
    ]

    def load(*overrides: str) -> LoadedRecipe:
        return load_recipe(folder / "recipe.yaml", [*small, *overrides])

    return load


def train(loaded: LoadedRecipe, folder: RunFolder | None = None) -> RunFolder:
    resume = folder is not None
    folder = folder or RunFolder.create(loaded.recipe.run.root, "rl", loaded.resolved())
    LocalLearner().train(loaded, folder, resume=resume)
    return folder


def test_a_few_updates_are_finite_and_can_be_resumed(load: Any) -> None:
    loaded = load()
    warm = run_sft(loaded, RunFolder.create(loaded.recipe.run.root, "sft", loaded.resolved()))
    folder = train(load(f"model.path={warm}", "train.steps=2"))
    train(load(f"model.path={warm}"), folder)

    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))
    assert all(row["optim/steps"] == 1 and row["optim/grad_norm"] > 0 for row in rows[1:])
    assert all(row["logp/max_abs_diff"] < 1e-2 and row["chains/unscored"] == 0 for row in rows[1:])

    searched = 0
    decode = load().template().decode
    for trajectory in read_trajectories(folder.path):
        (segment,) = trajectory.segments
        sampled = [id for id, mask in zip(segment.token_ids, segment.action_mask, strict=True) if mask]
        assert sampled == [id for turn in trajectory.turns for id in turn.token_ids]
        for before, after in zip(segment.spans, segment.spans[1:], strict=False):
            between = decode(segment.token_ids[before.end : after.start])
            found = trajectory.turns[before.turn].outcomes
            searched += bool(found)
            if found:
                assert between == f"\n\n<information>{found[0].content}</information>\n\n"
    assert searched > 0
