"""Recipe files and overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentfly_core.recipes.checking import check_recipe
from agentfly_core.recipes.describe import describe_schema
from agentfly_core.recipes.reading import apply_overrides, parse_yaml, read_recipe_file
from agentfly_core.types import UsageError

MODEL = {"path": "m", "template": "t"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1E5", 100000.0),
        ("-2.", -2.0),
        (".5", 0.5),
        ("1.5e+3", 1500.0),
        ("-.inf", float("-inf")),
        ("12", 12),
        ("+3", 3),
        ("007", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
        ("e5", "e5"),
        ("1e", "1e"),
        ("-", [None]),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: {path: m, template: t}\ntrain:\n  steps: 3\n  optimizer: {lr: 1e-4}\n")
    (tmp_path / "a.toml").write_text(
        '[model]\npath = "m"\ntemplate = "t"\n[train]\nsteps = 3\n[train.optimizer]\nlr = 1e-4\n'
    )
    yaml_data = read_recipe_file(tmp_path / "a.yaml")
    assert yaml_data == read_recipe_file(tmp_path / "a.toml")
    assert check_recipe(yaml_data).train.optimizer.lr == 0.0001


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "a: 1\nb: {x: 1, x: 2}\n", r"a\.yaml:2: the key 'x' occurs twice"),
        ("a.yaml", "a: [1\nb: 2\n", r"a\.yaml:2: .*expected"),
        ("a.yaml", "- 1\n", r"a recipe is a mapping of sections, got a list"),
        ("a.yaml", "", r"got nothing"),
        ("a.yaml", "a: !!python/object:os.system {}", r"could not determine a constructor"),
        ("a.yaml", "a: 1\n? [b]\n: 2\n", r"a\.yaml:2: a key must be a name"),
        ("a.yaml", "a: &a {b: *a}", r"a\.yaml: an anchor contains itself"),
        ("a.yaml", LAUGHS, r"a\.yaml: it has more than 100000 parts, anchors written out"),
        ("a.yaml", "a: " + "[" * 5000, r"a\.yaml: nested too deeply"),
        ("a.yaml", "a: !!int x", r"a\.yaml: a value is not what its tag says"),
        ("a.yaml", "a: !!bool perhaps", r"a\.yaml: a value is not what its tag says"),
        ("a.yaml", "a: !!timestamp soon", r"a\.yaml: a value is not what its tag says"),
        ("a.yaml", "a: " + "1" * 5000, r"a\.yaml: a value is not what its tag says"),
        ("a.toml", "a = " + "1" * 5000, r"a\.toml: "),
        ("a.toml", "a = " + "[" * 5000, r"a\.toml: "),
        ("a.toml", "a = \n", r"a\.toml: .*line 1"),
        ("a.toml", "a = 1\na = 2\n", r"a\.toml: .*overwrite"),
        ("a.txt", "", r"a recipe is a \.yaml, \.yml or \.toml file"),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=says):
        read_recipe_file(tmp_path / name)


def test_a_missing_and_a_binary_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_recipe_file(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_recipe_file(tmp_path / "b.yaml")


def test_overrides_set_numbers_lists_and_new_sections() -> None:
    data: dict[str, Any] = {"train": {"steps": 1}, "learner": "local", "data": {"train": "a.jsonl"}}
    paths = apply_overrides(
        data,
        [
            "train.optimizer.lr=1e-4",
            "train.steps=7",
            "agent.tools=[calculator, answer]",
            "learner.options.fast=true",
            "data.train.limit=5",
            "rewards.0=exact_match",
            "rewards.1.name=format",
            "name=a=b",
            "environment=",
        ],
    )
    assert paths[:2] == ["train.optimizer.lr", "train.steps"]
    assert data == {
        "train": {"steps": 7, "optimizer": {"lr": 0.0001}},
        "agent": {"tools": ["calculator", "answer"]},
        "learner": {"name": "local", "options": {"fast": True}},
        "data": {"train": {"source": "a.jsonl", "limit": 5}},
        "rewards": ["exact_match", {"name": "format"}],
        "name": "a=b",
        "environment": None,
    }


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.steps", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("train..steps=3", "not of the form key=value"),
        ("train.steps.more=1", "train.steps is 1 and has no parts"),
        ("rewards.x=1", "'x' is no place in a list of 0"),
        ("rewards.2=1", "'2' is no place in a list of 0"),
        ("train.steps=[1", "expected"),
    ],
)
def test_bad_overrides(override: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        apply_overrides({"train": {"steps": 1}, "rewards": []}, [override])
    assert override in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"train": {"stesp": 1}}, "r.yaml: train.stesp: unknown key; did you mean 'steps'?"),
        ({"train": {"optimizer": {"learning": 1}}}, "train.optimizer.learning: unknown key; known here: name, lr,"),
        ({"train": {"checkpoint_every": 1}}, "unknown key; did you mean 'run.checkpoint_every'?"),
        ({"steps": 3}, "r.yaml: steps: unknown key; did you mean 'train.steps' or 'sft.steps'?"),
        ({"optimizer": {"lr": 1}}, "unknown key; did you mean 'train.optimizer.lr' or 'sft.optimizer.lr'?"),
        ({"optimizer": {"lr": 1, "x": 1}}, "unknown key; did you mean 'train.optimizer' or 'sft.optimizer'?"),
        ({"data": {"name": "x"}}, "r.yaml: data.name: unknown key; known here: train, eval,"),
        ({"rewards": [{"name": "a", "wieght": 1}]}, "r.yaml: rewards.0.wieght: unknown key; did you mean 'weight'?"),
        ({"data": {"train": {"source": "a", "limits": 1}}}, "data.train.limits: unknown key; did you mean 'limit'?"),
        ({"environment": {"name": "e", "capasity": 1}}, "environment.capasity: unknown key; did you mean 'capacity'?"),
        ({"train": {"steps": "10"}}, "r.yaml: train.steps: must be a valid integer, got '10' (text)"),
        ({"train": {"steps": 1.5}}, "train.steps: must be a valid integer, got a number with a fractional part"),
        ({"train": {"steps": True}}, "train.steps: must be a valid integer, got True (a boolean)"),
        ({"train": {"steps": 0}}, "train.steps: must be greater than or equal to 1, got 0 (an integer)"),
        ({"train": 3}, "train: must be a mapping, got 3 (an integer)"),
        ({"agent": {"tools": "calculator"}}, "agent.tools: must be a valid list, got 'calculator' (text)"),
        ({"seed": -1}, "seed: must be greater than or equal to 0, got -1"),
        ({"seed": 2**63}, "seed: must be less than 9223372036854775808, got 9223372036854775808"),
        ({"rollout": {"temperature": float("inf")}}, "rollout.temperature: must be a finite number, got inf"),
        ({"train": {"optimizer": {"eps": float("nan")}}}, "train.optimizer.eps: must be a finite number, got nan"),
        ({"seed": None}, "seed: must be a valid integer, got nothing"),
        ({"evaluation": {"modes": ["gredy"]}}, "evaluation.modes.0: must be 'sampled' or 'greedy', got 'gredy' (text)"),
        ({"rollout": {"top_k": 3}}, "training needs top_p: 1.0 and top_k: 0"),
        ({"model": {"path": "x"}}, "model.template: missing"),
    ],
)  # fmt: skip
def test_each_mistake_is_said_with_its_place(data: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_recipe({"model": MODEL, **data}, origin="r.yaml")
    if "fractional" in says:
        assert "train.steps: must be a valid integer" in str(caught.value)
    else:
        assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_mistakes_are_listed_in_one_message() -> None:
    with pytest.raises(UsageError) as caught:
        check_recipe({"modle": MODEL, "seed": "x"}, origin="r.yaml", overridden=["seed"])
    assert str(caught.value).splitlines() == [
        "r.yaml: 3 errors",
        "  seed (set by an override): must be a valid integer, got 'x' (text)",
        "  model: missing",
        "  modle: unknown key; did you mean 'model'?",
    ]


def test_shorthands_and_numbers() -> None:
    recipe = check_recipe(
        {"model": MODEL, "algorithm": "rloo", "rewards": ["a"], "train": {"optimizer": {"lr": 1, "betas": [0, 0.5]}}}
    )
    assert recipe.algorithm.name == "rloo"
    assert recipe.rewards[0].weight == 1.0
    assert recipe.train.optimizer.lr == 1.0
    assert recipe.train.optimizer.betas == (0, 0.5)


def test_the_schema_table_knows_defaults_in_place() -> None:
    rows = {row["key"]: row for row in describe_schema()}
    assert rows["model.path"]["default"] == "(required)"
    assert rows["train.optimizer.lr"]["default"] == "1e-06"
    assert rows["sft.optimizer.lr"]["default"] == "1e-05"
    assert rows["learner.name"]["default"] == "local"
    assert rows["rewards.N.weight"]["type"] == "number"
    assert rows["run.trackers.N.name"]["type"] == "text"
    assert "Passes over each batch" in rows["train.epochs"]["meaning"]
