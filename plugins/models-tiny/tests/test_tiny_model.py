"""The packaged model itself, and making it anew."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentfly_models_tiny import model_folder  # noqa: E402
from agentfly_models_tiny.build import SHAPE, build_model, random_model  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from agentfly_core.backends.loading import load_model  # noqa: E402
from agentfly_core.learners.evaluate import evaluate  # noqa: E402
from agentfly_core.recipes.load import load_recipe  # noqa: E402
from agentfly_core.types import UsageError  # noqa: E402

pytestmark = pytest.mark.torch
BAND = (0.06, 0.19)
"""Held-out success of a warm start, sampled at temperature 1."""


def success(model: str, tasks: int) -> dict[str, float]:
    recipe = load_recipe("tiny:calculator", [f"model.path={model}", "model.device=cpu"])
    with recipe.engine(recipe.backend()) as engine:
        return evaluate(engine, recipe.eval_tasks(tasks), modes=["sampled"], recipe=recipe.recipe)


def test_it_loads_as_float32_with_half_a_million_parameters():
    model = load_model(model_folder())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert 500_000 < sum(p.numel() for p in model.parameters()) < 600_000
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_it_calls_its_tool_sometimes_and_seldom_succeeds():
    found = success("tiny", 200)
    assert 0.02 < found["eval/sampled/success"] < 0.28  # the band, and what 200 chains scatter
    assert 0.05 < found["eval/sampled/tools_per_chain"] < 0.8


def test_random_weights_depend_on_the_seed_alone(tmp_path):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        folder.mkdir()
        random_model(folder, seed=seed)
        weights.append((folder / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
    assert load_model(tmp_path / "a").config.hidden_size == SHAPE["hidden_size"]


def test_build_refuses_to_overwrite(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        build_model(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["calculator", "rooms", "warm-start"])
def test_the_recipes_load(name):
    recipe = load_recipe(f"tiny:{name}")
    assert recipe.model_path == str(model_folder())
    if name == "warm-start":
        recipe.check_sft()
    else:
        recipe.check_training()
        assert len({task.id for task in recipe.eval_tasks(20)}) == 20


@pytest.mark.slow
def test_a_rebuilt_model_falls_into_the_band(tmp_path):
    from agentfly_models_tiny.command import command

    output = tmp_path / "model"
    result = CliRunner().invoke(command, ["build", "--output", str(output), "--seed", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert sorted(f.name for f in output.iterdir()) == sorted(f.name for f in model_folder().iterdir())
    low, high = BAND
    assert low <= success(str(output), 1000)["eval/sampled/success"] <= high
