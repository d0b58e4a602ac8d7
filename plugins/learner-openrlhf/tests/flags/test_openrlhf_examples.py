"""The worked recipes and what the docs say about them, by dry run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from agentfly_learner_openrlhf.flags import LearnerOptions
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.tools.calculator import evaluate

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "openrlhf"
PAGE = ROOT / "docs" / "plugins" / "learner-openrlhf.md"
if not PAGE.is_file():
    pytest.skip("the examples and the docs are in the repository only", allow_module_level=True)
RECIPES = sorted(EXAMPLES.glob("*.yaml"))
TAGS = ("tool_call", "tool_response", "think")
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<{c}{tag}>" for tag in TAGS for c in ("", "/"))]
DryRun = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory: pytest.TempPathFactory) -> DryRun:
    """``agentfly train RECIPE --dry-run --json``, a tokenizer of single bytes standing in for the hub's."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("agentfly_templates_qwen")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    model = tmp_path_factory.mktemp("model")
    tokenizer.save(str(model / "tokenizer.json"))

    def run(recipe: Path, *overrides: str) -> dict[str, Any]:
        command = ["train", str(recipe), *overrides, f"model.path={model}", "--dry-run", "--json"]
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        plan: dict[str, Any] = json.loads(result.stdout)
        return plan

    return run


def documented() -> Iterator[Any]:
    """The dry runs that the page shows."""
    for line in re.findall(r"^agentfly train (examples/\S+.*)$", PAGE.read_text(), re.MULTILINE):
        recipe, *rest = shlex.split(line, comments=True)
        yield pytest.param(ROOT / recipe, [word for word in rest if "=" in word], id=" ".join([recipe, *rest]))


@pytest.mark.parametrize(("recipe", "overrides"), list(documented()))
def test_a_command_of_the_page_resolves(recipe: Path, overrides: list[str], dry_run: DryRun) -> None:
    assert dry_run(recipe, *overrides)["placement"]["gpus"] in (8, 16)


@pytest.mark.parametrize(("recipe", "nodes"), [("qwen2.5-3b", 1), ("qwen3-8b", 1), ("qwen2.5-3b", 2), ("qwen3-8b", 2)])
def test_hybrid_recipes_use_every_gpu_for_everything(recipe: str, nodes: int, dry_run: DryRun) -> None:
    plan = dry_run(EXAMPLES / f"{recipe}.yaml", f"learner.options.nodes={nodes}")
    assert plan["placement"]["gpus"] == 8 * nodes
    assert all(role["gpus"] == 8 * nodes for role in plan["placement"]["roles"])
    assert plan["batches"]["data_parallel"] == 8 * nodes
    flags = {row["flag"]: row["value"] for row in plan["flags"]}
    assert flags["--train.colocate_all"]
    assert flags["--vllm.enable_sleep"]


@pytest.mark.parametrize(("recipe", "engines", "width"), [("qwen2.5-3b-async", 8, 1), ("qwen3-8b-async", 4, 2)])
def test_asynchronous_recipes_divide_two_nodes(recipe: str, engines: int, width: int, dry_run: DryRun) -> None:
    plan = dry_run(EXAMPLES / f"{recipe}.yaml")
    roles = {role["role"]: role for role in plan["placement"]["roles"]}
    assert (roles["engines"]["processes"], roles["engines"]["gpus"]) == (engines, engines * width) == (engines, 8)
    assert roles["policy"]["gpus"] == 8
    assert roles["engines"]["shares"] is None
    flags = {row["flag"]: row["value"] for row in plan["flags"]}
    assert flags["--train.partial_rollout_enable"]
    assert not flags["--vllm.enable_prefix_caching"]


def test_every_recipe_is_on_the_page() -> None:
    assert len(RECIPES) == 4
    page = PAGE.read_text()
    assert all(f"examples/openrlhf/{recipe.name}" in page for recipe in RECIPES)


def test_the_answers_are_right() -> None:
    """Recomputed from the words of the problem."""
    spec = importlib.util.spec_from_file_location("openrlhf_problems", EXAMPLES / "problems.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = list(islice(module.problems("train", seed=3, steps=7), 40))
    for row in rows:
        count = int(re.search(r"has (\d+)", row["prompt"])[1])  # type: ignore[index]
        for day in re.findall(r"On day \d, ([^.]+)\.", row["prompt"]):
            numbers = [int(n) for n in re.findall(r"\d+", day)]
            change = numbers[0] * numbers[1] if len(numbers) == 2 else count // numbers[0]
            count = int(evaluate(f"{count} {'-' if 'take' in day else '+'} {change}"))
        assert row["answer"] == count
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == 40
    again = module.problems("eval", seed=3)
    assert next(again) == next(module.problems("eval", seed=4)), "held-out problems do not depend on the seed"
    assert next(again)["prompt"] not in {row["prompt"] for row in rows}


def test_the_slurm_script_is_sound_bash() -> None:
    done = subprocess.run(["bash", "-n", str(EXAMPLES / "train.slurm")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_option_is_on_the_page() -> None:
    options = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(), re.MULTILINE)
    named = {name for cell in options for name in re.findall(r"`(\w+)`", cell)}
    known = {field.alias or name for name, field in LearnerOptions.model_fields.items()}
    assert known <= named
