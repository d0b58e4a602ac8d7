"""The local learner on real parts: recipe, engine, hf backend and a tiny random model."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

from agentfly_core import hookimpl  # noqa: E402
from agentfly_core.backends.loading import load_model  # noqa: E402
from agentfly_core.learners.evaluate import eval_sampling  # noqa: E402
from agentfly_core.learners.local import LocalLearner  # noqa: E402
from agentfly_core.recipes.load import LoadedRecipe, load_recipe  # noqa: E402
from agentfly_core.recipes.schema import Recipe  # noqa: E402
from agentfly_core.runs import RunFolder, read_trajectories  # noqa: E402
from agentfly_core.types import Trajectory, UsageError  # noqa: E402

TIMINGS = ("seconds", "tokens_per_second")


@pytest.fixture
def load(tmp_path: Path, model_folder: Path, plugin_file: Path) -> Any:
    """A function that loads a recipe of six short steps, with overrides."""
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Say {i}", "id": f"t{i}"}) + "\n" for i in range(5)))

    def load(*overrides: str, reward: str = "letters") -> LoadedRecipe:
        recipe: dict[str, Any] = {
            "name": "tiny",
            "seed": 3,
            "plugins": [str(plugin_file)],
            "model": {"path": str(model_folder), "template": "plain", "device": "cpu"},
            "agent": {"tools": ["look"], "max_turns": 2},
            "data": {"train": str(data), "eval": str(data)},
            "rewards": [reward],
            "rollout": {"max_tokens_per_turn": 6},
            "train": {
                "steps": 6,
                "tasks_per_step": 2,
                "chains_per_task": 4,
                "optimizer": {"lr": 0.003},
            },
            "evaluation": {"tasks": 3, "modes": ["sampled", "greedy"], "success_threshold": 0.5},
            "run": {"root": str(tmp_path / "runs"), "checkpoint_every": 3},
            "deterministic": True,
        }
        return load_recipe(recipe, overrides)

    return load


def train(loaded: LoadedRecipe, folder: RunFolder | None = None, **options: Any) -> RunFolder:
    folder = folder or RunFolder.create(loaded.recipe.run.root, "tiny", loaded.resolved())
    learner = loaded.check_training()
    learner.train(loaded, folder, **options)
    return folder


def numbers(folder: RunFolder) -> list[dict[str, float]]:
    """The run's metrics without timings."""
    return [{k: v for k, v in line.items() if not k.endswith(TIMINGS)} for line in folder.metrics.read()]


def weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path / "model.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


class StopAt:
    """An observer that asks for the end of the run after a step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.event = threading.Event()
        self.finished: list[dict[str, Any]] = []

    @hookimpl
    def update_finished(self, step: int) -> None:
        if step == self.step:
            self.event.set()

    @hookimpl
    def run_finished(self, summary: dict[str, Any]) -> None:
        self.finished.append(dict(summary))


def test_a_run_leaves_what_it_should(load: Any, model_folder: Path) -> None:
    loaded = load("train.kl.coef=0.01", "evaluation.every=4")
    folder = train(loaded)
    lines = folder.metrics.read()
    assert [line["step"] for line in lines] == list(range(7))
    assert [line["step"] for line in lines if "eval/greedy/success" in line] == [0, 4, 6]
    for line in lines[1:]:
        assert line["logp/max_abs_diff"] < 1e-4
        assert line["rollout/sampled_tokens"] > 0
        assert line["chains/unscored"] == 0
        assert line["optim/steps"] == 1
        assert line["reward/std"] > 0
        assert line["kl/ref"] >= 0
    assert lines[1]["kl/ref"] == pytest.approx(0.0, abs=1e-6)
    assert lines[6]["kl/ref"] > 1e-6
    assert [step for step, _ in folder.checkpoints.all()] == [3, 6]
    assert folder.status().state == "finished"
    assert folder.status().step == 6
    final = weights(folder.model_path)
    assert equal(final, weights(folder.checkpoints.all()[-1][1]))
    assert not equal(final, weights(model_folder))
    assert (folder.model_path / "tokenizer.json").read_bytes() == (model_folder / "tokenizer.json").read_bytes()
    load_model(folder.model_path)
    chains = list(read_trajectories(folder.path))
    assert sum(t.split == "train" for t in chains) == 6 * 8
    assert sum(t.split == "eval" for t in chains) == 3 * 6


def test_six_steps_are_three_resumed_for_three_more(load: Any) -> None:
    more = ("train.kl.coef=0.05", "train.minibatches=2", "train.optimizer.schedule=linear")
    whole = train(load(*more))
    loaded = load(*more)
    stop = StopAt(3)
    loaded.plugins.observe(stop)
    parted = train(loaded, stop=stop.event)
    assert parted.status().state == "stopped"
    assert parted.status().step == 3
    assert stop.finished[0]["stopped"]
    parted.metrics.append(4, {"reward/mean": 99.0})  # of a step that was lost
    train(load(*more), parted, resume=True)
    assert parted.status().state == "finished"
    assert numbers(parted) == numbers(whole)
    assert equal(weights(parted.model_path), weights(whole.model_path))
    tokens = [[s.token_ids for t in read_trajectories(f.path) for s in t.segments] for f in (whole, parted)]
    assert tokens[0] == tokens[1]


def test_a_finished_run_is_not_resumed_in_silence(load: Any) -> None:
    loaded = load("train.steps=1", "evaluation.before=false", "evaluation.after=false")
    folder = train(loaded)
    with pytest.raises(UsageError, match=r"all its 1 steps.*train\.steps"):
        train(loaded, folder, resume=True)


def test_resuming_without_a_checkpoint_begins_anew(load: Any) -> None:
    loaded = load("train.steps=1", "evaluation.modes=[greedy]")
    folder = RunFolder.create(loaded.recipe.run.root, "tiny", loaded.resolved())
    folder.metrics.append(0, {"reward/mean": 99.0})
    train(loaded, folder, resume=True)
    assert [line["step"] for line in folder.metrics.read()] == [0, 1]
    assert "reward/mean" not in folder.metrics.read()[0]


class StopInEvaluation:
    """An observer that asks for the end of the run when the n-th chain of an evaluation ends."""

    def __init__(self, chains: int) -> None:
        self.left = chains
        self.event = threading.Event()

    @hookimpl
    def trajectory_finished(self, trajectory: Trajectory) -> None:
        self.left -= trajectory.split == "eval"
        if self.left == 0:
            self.event.set()


def test_a_stop_in_the_evaluation_before_the_first_step_trains_nothing(load: Any) -> None:
    loaded = load("evaluation.chains_per_task=2", "rollout.max_concurrency=1", "deterministic=false")
    stop = StopInEvaluation(2)
    loaded.plugins.observe(stop)
    folder = train(loaded, stop=stop.event)
    assert stop.left > 3 - (6 + 3)  # the chains that were left did not all run
    assert (folder.status().state, folder.status().step) == ("stopped", 0)
    assert folder.checkpoints.all() == []
    assert not folder.model_path.exists()
    resumed = train(load("train.steps=1"), folder, resume=True)
    assert [line["step"] for line in resumed.metrics.read()] == [0, 1]
    assert resumed.status().state == "finished"


def test_a_stop_before_anything_begins_samples_nothing(load: Any) -> None:
    loaded = load()
    stop = StopInEvaluation(1)
    loaded.plugins.observe(stop)
    stop.event.set()
    folder = train(loaded, stop=stop.event)
    assert stop.left == 1
    assert folder.status().state == "stopped"
    assert folder.metrics.read() == []


def test_a_stop_in_a_later_evaluation_keeps_the_step(load: Any) -> None:
    loaded = load("evaluation.before=false", "evaluation.every=2", "evaluation.modes=[sampled]")
    stop = StopInEvaluation(1)
    loaded.plugins.observe(stop)
    folder = train(loaded, stop=stop.event)
    assert (folder.status().state, folder.status().step) == ("stopped", 2)
    assert [step for step, _ in folder.checkpoints.all()] == [2]
    assert [line["step"] for line in folder.metrics.read()] == [1, 2]
    assert not any(name.startswith("eval/") for line in folder.metrics.read() for name in line)
    assert {t.split for t in read_trajectories(folder.path)} == {"train"}


def test_the_backend_has_the_learners_weights(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[tuple[int, dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []
    from agentfly_core.learners import local

    honest = local.hand_over

    def spy(backend: Any, given: Any, version: int) -> None:
        honest(backend, given, version)
        copies = [{k: v.clone() for k, v in x.items()} for x in (given, backend.model.state_dict())]
        handed.append((version, *copies))
        assert backend.weight_version == version

    monkeypatch.setattr(local, "hand_over", spy)
    folder = train(load("train.steps=2", "evaluation.before=false", "evaluation.after=false"))
    assert [version for version, _, _ in handed] == [0, 1, 2]
    for _, given, held in handed:
        assert equal(given, held)
    assert not equal(handed[0][1], handed[2][1])
    final = weights(folder.model_path)
    assert all(torch.equal(final[k], handed[2][1][k]) for k in final)
    versions = {t.segments and t.turns[0].weight_version for t in read_trajectories(folder.path)}
    assert versions == {0, 1}


def test_equal_rewards_train_nothing_and_the_run_goes_on(load: Any, model_folder: Path) -> None:
    loaded = load("train.steps=2", "rewards=[same]", "evaluation.before=false", "evaluation.after=false")
    folder = train(loaded)
    for line in folder.metrics.read():
        assert (line["optim/idle"], line["optim/steps"], line["group/zero_variance"]) == (1.0, 0.0, 1.0)
        assert line["logp/max_abs_diff"] < 1e-4
    assert equal(weights(folder.model_path), weights(model_folder))


def test_rewards_that_fail_leave_their_chains_out(load: Any) -> None:
    loaded = load("train.steps=3", "rewards=[broken]", "evaluation.modes=[sampled]")
    folder = train(loaded)
    lines = folder.metrics.read()
    assert any(line["chains/unscored"] > 0 for line in lines[1:])
    assert all(line.get("reward/mean", 0.25) == 0.25 for line in lines[1:])
    assert lines[0]["eval/sampled/unscored"] >= 0
    assert folder.status().state == "finished"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("algorithm=ppo", "critic"),
        ("rollout.temperature=0.0", "rollout.temperature"),
        ("train.minibatches=3", "train.minibatches"),
        ("train.chains_per_task=1", "train.chains_per_task"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_field(load: Any, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(override).check_training()


def test_training_refuses_what_check_refuses(load: Any) -> None:
    loaded = load("algorithm=ppo")
    assert len(LocalLearner().check(loaded)) == 1
    folder = RunFolder.create(loaded.recipe.run.root, "tiny", loaded.resolved())
    with pytest.raises(UsageError, match="critic"):
        LocalLearner().train(loaded, folder)


def test_a_crash_is_written_into_the_status(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentfly_core.learners import local

    def explode(*args: Any) -> None:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(local, "collate", explode)
    loaded = load("evaluation.before=false")
    folder = RunFolder.create(loaded.recipe.run.root, "tiny", loaded.resolved())
    threads = threading.active_count()
    with pytest.raises(RuntimeError):
        train(loaded, folder)
    assert folder.status().state == "failed"
    assert folder.status().error == "RuntimeError: out of memory"
    assert threading.active_count() <= threads


@pytest.mark.parametrize("file", ["trainer/state.json", "trainer/state.pt", "model.safetensors", "config.json"])
def test_a_damaged_checkpoint_is_named_with_the_way_out(load: Any, file: str) -> None:
    loaded = load("train.steps=2", "run.checkpoint_every=1", "evaluation.before=false", "evaluation.after=false")
    stop = StopAt(1)
    loaded.plugins.observe(stop)
    folder = train(loaded, stop=stop.event)
    saved = folder.checkpoints.latest()
    assert saved is not None
    damaged = saved[1] / file
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    with pytest.raises(UsageError, match=r"step-000001 cannot be resumed.*delete it to go on from the one before"):
        train(load("train.steps=2"), folder, resume=True)


def test_a_run_without_one_score_fails_in_the_end(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from agentfly_core.cli.train import train as command

    loaded = load("train.steps=2", "evaluation.before=false", "evaluation.after=false", reward="never")
    folder = RunFolder.create(loaded.recipe.run.root, "tiny", loaded.resolved())
    with pytest.raises(UsageError, match="not one chain had a score, so nothing was learned"):
        command(loaded, folder, loaded.check_training(), resume=False)
    assert (folder.status().state, folder.status().step) == ("failed", 2)
    assert folder.status().error.startswith("not one chain had a score")
    assert "the judge is out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["reinforce++", "reinforce++-baseline", "rloo", "mt-ppo", "reinforce", "dr_grpo"])
def test_every_algorithm_without_a_critic_trains(load: Any, model_folder: Path, name: str) -> None:
    folder = train(load(f"algorithm={name}", "train.steps=1", "evaluation.before=false", "evaluation.after=false"))
    assert folder.metrics.read()[0]["optim/steps"] == 1
    assert not equal(weights(folder.model_path), weights(model_folder))


def test_what_cannot_be_written_is_refused_before_the_run(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"trajectories needs the package 'pyarrow'.*pip install"):
        load().check_training()
    load("run.save_trajectories=false").check_training()


def test_evaluation_ends_turns_where_training_does() -> None:
    recipe = Recipe.model_validate({"model": {"path": "x", "template": "y"}, "rollout": {"stop": ["</answer>"]}})
    for mode in ("greedy", "sampled"):
        assert eval_sampling(recipe, mode).stop == ("</answer>",)
