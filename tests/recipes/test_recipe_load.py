"""Loading: every name, option and field is checked before anything starts."""

from __future__ import annotations

import asyncio
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.load import load_recipe
from agentfly_core.types import UnknownName, UsageError

Write = Callable[[dict[str, Any]], Path]


def change(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *keys, last = path.split(".")
    target = data
    for key in keys:
        target = target.setdefault(key, {})
    target[last] = value
    return data


def test_a_good_recipe(basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path) -> None:
    loaded = load_recipe(write_recipe(basic), ["train.steps=5", "data.shuffle=false"], plugins=plugins)
    assert loaded.recipe.train.steps == 5
    assert loaded.model_path == str(tmp_path / "model")
    assert [t.name for t in loaded.tools] == ["double"]
    assert loaded.reward is not None
    assert loaded.reward.name == "is_right"
    assert [t.id for t in itertools.islice(loaded.train_tasks(), 9)] == ["0", "1", "2", "3", "4", "5", "6", "7", "0"]
    assert [t.id for t in itertools.islice(loaded.train_tasks(start=6), 3)] == ["6", "7", "0"]
    assert [t.fields for t in loaded.eval_tasks(2)] == [{"answer": "0"}, {"answer": "1"}]
    assert len(loaded.eval_tasks()) == 10
    assert loaded.environment_spec() is None


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("agent.tools", ["duoble"], r"unknown tool 'duoble'; did you mean 'double'"),
        ("agent.tools", ["double", "demo_parts:double"], "two tools are named 'double'"),
        ("agent.name", "tool-caling", r"unknown agent 'tool-caling'; did you mean 'tool-calling'"),
        ("agent.options", {"remainder": "x"}, r"unknown option of agent 'tool-calling' 'remainder'; did you mean"),
        ("agent.options", {"reminder": 3}, r"option 'reminder' of agent 'tool-calling': must be a valid string, got 3"),
        ("model.template", "mimi", r"unknown template 'mimi'; did you mean 'mini'"),
        ("model.template", "qwen2.5", r"pip install agentfly-plugin-templates-qwen"),
        ("model.template_options", {"lod": True}, "unknown option of model.template_options 'lod'; did you mean"),
        ("model.path", "./nowhere", r"model.path: there is no model folder './nowhere'"),
        ("rewards", ["is_rigth"], r"unknown reward 'is_rigth'; did you mean 'is_right'"),
        ("rewards", [{"name": "is_right", "options": {"a": 1}}], r"reward 'is_right' takes no options, got a"),
        ("rewards", [{"name": "scaled", "options": {"factr": 1}}], "unknown option of reward 'scaled' 'factr'; did"),
        ("rewards", [{"name": "scaled", "options": {"factor": "x"}}], "option 'factor' of reward 'scaled': must be a"),
        ("algorithm", "grop", r"unknown algorithm 'grop'; did you mean 'grpo'"),
        ("learner", "locl", r"unknown learner 'locl'; did you mean 'local'"),
        ("learner", "openrlhf", r"pip install agentfly-plugin-learner-openrlhf"),
        ("rollout.backend", "hff", r"unknown backend 'hff'; did you mean 'hf'"),
        ("run.trackers", ["tensorbord"], r"unknown tracker 'tensorbord'; did you mean 'tensorboard'"),
        ("run.trackers", [{"name": "tensorboard", "options": {"flush": 1}}], "unknown option of tracker"),
        ("environment", "count", r"unknown environment 'count'; did you mean 'counter'"),
        ("environment", {"name": "counter", "options": {"stat": 1}}, r"unknown option of environment 'counter' 'stat'"),
        ("plugins", ["demo_parts.py", "other.py"], r"other\.py does not exist \(named in the recipe's `plugins`\)"),
        ("data.train", "other.jsonl", r"other\.jsonl does not exist"),
        ("data.eval", "other.jsonl", r"other\.jsonl does not exist"),
        ("data.prompt", "question", r"train\.jsonl:1: no column 'question' .*; its columns: prompt, answer"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_error(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, path: str, value: Any, says: str
) -> None:
    file = write_recipe(change(basic, path, value))
    with pytest.raises(UsageError, match=says) as caught:
        load_recipe(file, plugins=plugins)
    assert str(file) in str(caught.value) or ".jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_field_that_a_reward_needs(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": "x", "answer": 1}\n{"prompt": "y", "solution": 2, "level": 3}\n')
    basic["rewards"] = ["short", {"name": "is_right", "weight": 0.5}]
    with pytest.raises(UsageError) as caught:
        load_recipe(write_recipe(basic), plugins=plugins)
    expected = (
        f"reward 'is_right' needs the field 'answer', which {tmp_path}/train.jsonl:2 lacks; its fields: level, solution"
    )
    assert expected in str(caught.value)


def test_a_malformed_row(basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": "x", "answer": 1}\n{"prompt": \n')
    with pytest.raises(UsageError, match=r"train\.jsonl:2: not JSON"):
        load_recipe(write_recipe(basic), plugins=plugins)


def test_a_mapping_and_a_missing_file(basic: dict[str, Any], plugins: Plugins, tmp_path: Path) -> None:
    before = yaml.safe_dump(basic)
    with pytest.raises(UsageError):
        load_recipe(basic, ["train.steps=none"], plugins=plugins)
    assert yaml.safe_dump(basic) == before
    with pytest.raises(UsageError, match=r"no\.yaml does not exist"):
        load_recipe(tmp_path / "no.yaml", plugins=plugins)
    with pytest.raises(UnknownName, match="unknown recipe package 'nobody'"):
        load_recipe("nobody:quickstart", plugins=plugins)


@pytest.mark.parametrize("source", ["mine.jsonl", "mine.py:rows", "./deep/mine.jsonl"])
def test_data_is_looked_for_beside_the_recipe_and_then_where_one_stands(
    basic: dict[str, Any],
    write_recipe: Write,
    plugins: Plugins,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    here, recipe = tmp_path_factory.mktemp("here"), write_recipe(basic)
    monkeypatch.chdir(here)
    override = f"data.train={source}"
    file = Path(source.partition(":")[0])
    with pytest.raises(
        UsageError, match=r"mine" if source.endswith(":rows") else f"does not exist, nor is it in {here}"
    ):
        load_recipe(recipe, [override], plugins=plugins)

    def put(folder: Path, prompt: str) -> None:
        (folder / file).parent.mkdir(exist_ok=True)
        row = {"prompt": prompt, "answer": "1"}
        (folder / file).write_text(
            f"def rows(split, seed):\n    yield from [{row}] * 4\n"
            if file.suffix == ".py"
            else f"{json.dumps(row)}\n" * 4
        )

    put(here, "here")
    loaded = load_recipe(recipe, [override], plugins=plugins)
    assert next(loaded.train_tasks()).messages[-1]["content"] == "here"
    assert loaded.resolved()["data"]["train"]["source"] == source.replace(
        str(file), str((here / file).resolve()), 1
    ).removeprefix("./")
    if file.suffix != ".py":  # which Python keeps once it is imported
        put(recipe.parent, "beside")
        assert next(load_recipe(recipe, [override], plugins=plugins).train_tasks()).messages[-1]["content"] == "beside"


def test_what_to_install_for_the_tiny_model(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])  # as if it were not installed
    with pytest.raises(UnknownName, match=r"install it with: pip install agentfly-plugin-models-tiny"):
        load_recipe("tiny:calculator", plugins=plugins)
    basic["model"]["path"] = "tiny"
    with pytest.raises(UsageError, match=r"'tiny' comes from a package: pip install agentfly-plugin-models-tiny"):
        load_recipe(write_recipe(basic), plugins=plugins)


def test_rewards_are_summed_by_weight(basic: dict[str, Any], write_recipe: Write, plugins: Plugins) -> None:
    from agentfly_core.types import ChainStatus, Task, ToolContext, Trajectory

    basic["rewards"] = [{"name": "is_right", "weight": 2}, {"name": "scaled", "options": {"factor": 3}, "weight": 0.5}]
    loaded = load_recipe(write_recipe(basic), plugins=plugins)
    assert loaded.reward is not None
    assert loaded.reward.fields == {"answer"}
    task = Task("t", (), {"answer": "4"})
    chain = Trajectory(task, 0, "g", "train", ChainStatus.COMPLETED, final_response="4")
    result = asyncio.run(loaded.reward.score(chain, ToolContext(fields=task.fields)))
    assert result.score == 2 * 1.0 + 0.5 * 3.0


def test_an_environment_with_its_own_tasks(basic: dict[str, Any], write_recipe: Write, plugins: Plugins) -> None:
    del basic["data"], basic["rewards"]
    basic["agent"] = "text-action"
    basic["environment"] = {"name": "counter", "options": {"start": 3}, "capacity": 2}
    loaded = load_recipe(write_recipe(basic), plugins=plugins)
    assert loaded.reward is not None
    assert loaded.reward.name == "environment_return"
    assert [t.id for t in itertools.islice(loaded.train_tasks(start=1), 2)] == ["train-0-1", "train-0-2"]
    assert [t.id for t in loaded.eval_tasks(1)] == ["eval-0-0"]
    spec = loaded.environment_spec()
    assert spec is not None
    assert (spec.kind, spec.arguments()) == ("object", {"start": 3})
    assert spec.target.endswith(":Counter")


def test_an_own_environment_in_a_worker_goes_by_its_file(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path
) -> None:
    basic["environment"] = {"name": "counter", "isolation": "worker"}
    spec = load_recipe(write_recipe(basic), plugins=plugins).environment_spec()
    assert spec is not None
    assert spec.target == f"{tmp_path}/demo_parts.py:Counter"


def test_data_from_the_recipes_own_file(basic: dict[str, Any], write_recipe: Write, plugins: Plugins) -> None:
    basic["data"] = {"train": {"source": "demo_parts:rows", "options": {"count": 4}}, "eval": "demo_parts:stream"}
    loaded = load_recipe(write_recipe(basic), ["seed=9"], plugins=plugins)
    contents = {t.messages[0]["content"] for t in itertools.islice(loaded.train_tasks(), 4)}
    assert contents == {f"train 9 {n}" for n in range(4)}
    assert [t.id for t in loaded.eval_tasks(3)] == ["eval0", "eval1", "eval2"]


def test_too_little_data_for_a_step(basic: dict[str, Any], write_recipe: Write, plugins: Plugins) -> None:
    basic["learner"] = "stub"
    loaded = load_recipe(write_recipe(basic), ["train.tasks_per_step=11"], plugins=plugins)
    with pytest.raises(UsageError, match="has 10 rows, but one step takes 11"):
        loaded.check_training()


def test_resolved_loads_again_from_anywhere(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    basic["sft"] = {"data": "train.jsonl"}
    loaded = load_recipe(write_recipe(basic), ["train.optimizer.lr=1e-5"], plugins=plugins)
    elsewhere = tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    (elsewhere / "recipe.yaml").write_text(yaml.safe_dump(loaded.resolved()))
    monkeypatch.chdir(elsewhere)
    again = load_recipe(elsewhere / "recipe.yaml", plugins=Plugins.load())
    assert again.resolved() == loaded.resolved()
    assert again.recipe.train.optimizer.lr == 1e-5
    assert again.model_path == loaded.model_path


def test_sft_rows(basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path) -> None:
    import json

    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    (tmp_path / "sft.jsonl").write_text("\n".join(json.dumps({"messages": talk, "n": n}) for n in range(3)))
    with pytest.raises(UsageError, match="sft: missing"):
        load_recipe(write_recipe(basic), plugins=plugins).check_sft()
    basic["sft"] = {"data": "sft.jsonl", "shuffle": False}
    rows = list(itertools.islice(load_recipe(write_recipe(basic), plugins=plugins).sft_rows(start=2), 2))
    assert rows == [{"messages": tuple(talk), "n": 2}, {"messages": tuple(talk), "n": 0}]
    (tmp_path / "sft.jsonl").write_text('{"text": "hi"}\n')
    with pytest.raises(UsageError, match=r"sft\.jsonl:1: no messages of an assistant to learn from; its columns: text"):
        load_recipe(write_recipe(basic), plugins=plugins).check_sft()


def test_the_template_must_fit_the_tokenizer(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path
) -> None:
    loaded = load_recipe(write_recipe(basic), plugins=plugins)
    assert len(loaded.template().stop_token_ids) == 1
    import runpy

    write = runpy.run_path(str(Path(__file__).parent / "demo_model.py"))["write_tokenizer"]
    write(model, ("<|user|>", "<|assistant|>"))
    with pytest.raises(UsageError, match=r"model\.template 'mini' with the model .*<\|end\|>"):
        loaded.template()
    (model / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"has no tokenizer\.json"):
        loaded.template()


def test_what_training_needs(basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path) -> None:
    basic |= {"learner": "stub", "algorithm": "stub"}
    file = write_recipe(basic)

    def refusal(*overrides: str) -> str:
        with pytest.raises(UsageError) as caught:
            load_recipe(file, overrides, plugins=plugins).check_training()
        return str(caught.value)

    learner = load_recipe(file, ["learner.options.pause=0.5"], plugins=plugins).check_training()
    assert learner.pause == 0.5  # type: ignore[attr-defined]
    assert "the stub refuses; use 3" in refusal("learner.options.refuse=true")
    assert "unknown option of learner 'stub' 'paus'; did you mean 'pause'?" in refusal("learner.options.paus=1")
    assert "option 'clip' of algorithm 'stub': must be a valid number" in refusal("algorithm.options.clip=high")
    assert "train.chains_per_task: stub compares chains of one task" in refusal("train.chains_per_task=1")
    assert "rewards: training needs at least one" in refusal("rewards=[]")
    assert "data.train: missing" in refusal("data.train=null")
    both = refusal("learner.options.refuse=true", "train.chains_per_task=1")
    assert len(both.splitlines()) == 3
    loaded = load_recipe(file, ["algorithm.options.kinds=[a, b]"], plugins=plugins)
    assert loaded.algorithm.kinds == ("a", "b")  # type: ignore[attr-defined]


def test_loading_needs_neither_torch_nor_transformers(basic: dict[str, Any], write_recipe: Write) -> None:
    basic |= {"algorithm": "grpo", "learner": "local", "rollout": {"backend": "hf"}}
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name.partition('.')[0] not in ('torch', 'transformers', 'numpy', 'pyarrow'), name\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from agentfly_core.recipes.load import load_recipe\n"
        "print(load_recipe(sys.argv[1]).resolved()['algorithm'])\n"
    )
    env = {**os.environ, "AGENTFLY_DISABLE_PLUGINS": "all"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(write_recipe(basic))], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'name': 'grpo', 'options': {}}\n"


def test_a_model_and_recipes_of_an_installed_package(
    basic: dict[str, Any], plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "demo_pack-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-pack\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[agentfly.models]\ndemo = demo_pack:folder\nbroken = demo_pack:broken\nwrong = demo_pack:wrong\n"
        "[agentfly.recipes]\ndemo = demo_pack.recipes\n"
    )
    (site / "demo_pack" / "recipes").mkdir(parents=True)
    (site / "demo_pack" / "__init__.py").write_text(
        f"def folder():\n    return {str(tmp_path / 'model')!r}\n"
        "def broken():\n    raise RuntimeError('no luck')\n"
        "def wrong():\n    return '/nowhere'\n"
    )
    (site / "demo_pack" / "recipes" / "__init__.py").touch()
    recipe = basic | {"plugins": [str(tmp_path / "demo_parts.py")], "model": {"path": "demo", "template": "mini"}}
    recipe["data"] = {"train": "demo_parts:rows"}
    (site / "demo_pack" / "recipes" / "first.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.syspath_prepend(site)
    loaded = load_recipe("demo:first", plugins=plugins)
    assert loaded.model_path == str(tmp_path / "model")
    assert loaded.resolved()["model"]["path"] == "demo"
    with pytest.raises(UnknownName, match="unknown recipe of 'demo' 'fist'; did you mean 'first'"):
        load_recipe("demo:fist", plugins=plugins)
    with pytest.raises(UsageError, match=r"model 'broken' \(demo-pack\) cannot be had: RuntimeError: no luck"):
        load_recipe("demo:first", ["model.path=broken"], plugins=plugins)
    with pytest.raises(UsageError, match="must return a model folder, got '/nowhere'"):
        load_recipe("demo:first", ["model.path=wrong"], plugins=plugins)
    sys.modules.pop("demo_pack", None)
    sys.modules.pop("demo_pack.recipes", None)


def test_a_reward_has_the_recipes_time(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "demo_parts.py"
    parts.write_text(
        parts.read_text()
        + """

@reward(timeout=None)
async def never(answer):
    await asyncio.Event().wait()


@hookimpl
def register_rewards(register):
    register(never)
"""
    )
    text = parts.read_text()
    parts.write_text(
        text.replace("from __future__ import annotations\n", "from __future__ import annotations\nimport asyncio\n", 1)
    )
    basic["rewards"] = ["never"]
    basic["rollout"] = {"backend": {"name": "scripted", "options": {"turns": ["4"]}}, "reward_timeout": 0.1}
    loaded = load_recipe(write_recipe(basic), plugins=Plugins.load())
    backend = loaded.backend()
    with loaded.engine(backend) as engine:
        (chain,) = engine.run(loaded.eval_tasks(1))
    asyncio.run(backend.close())
    assert (chain.scored, chain.unscored_reason) == (
        False,
        "reward 'never' failed: TimeoutError: reward 'never' took longer than 0.1 s",
    )


def test_the_engine_of_a_recipe(basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path) -> None:
    basic["rollout"] = {"backend": {"name": "scripted", "options": {"turns": ["4"]}}, "max_tokens_per_turn": 5}
    loaded = load_recipe(write_recipe(basic), ["agent.max_turns=2"], plugins=plugins)
    backend = loaded.backend()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with loaded.engine(backend) as engine:
            chains = sorted(engine.run(loaded.eval_tasks(5)), key=lambda t: t.task.id)
    asyncio.run(backend.close())
    assert [(t.reward, t.scored) for t in chains] == [(0, True), (0, True), (0, True), (0, True), (1, True)]
    assert chains[0].final_response == "4"
    assert chains[0].split == "train"


def test_an_agent_refuses_what_it_cannot_work_with(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path
) -> None:
    parts = tmp_path / "demo_parts.py"
    more = """
from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.types import UsageError


class Going(ToolCallingAgent):
    name = "going"
    continues = True

    def check_tools(self, tools):
        if "double" not in tools:
            raise UsageError("agent.tools: there must be double")


@hookimpl
def register_agents(register):
    register(Going)
"""
    parts.write_text(parts.read_text() + more)
    basic["agent"] = "going"
    with pytest.raises(UsageError, match=r"agent\.tools: there must be double"):
        load_recipe(write_recipe(basic), plugins=Plugins.load())
    basic["agent"] = {"name": "going", "tools": ["double"]}
    load_recipe(write_recipe(basic), plugins=Plugins.load())
    basic["model"]["history"] = "template"
    with pytest.raises(UsageError, match=r"model\.history: template .*agent 'going'.*use history: append"):
        load_recipe(write_recipe(basic), plugins=Plugins.load())


def test_stop_texts_of_a_recipe_end_its_turns(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path
) -> None:
    basic["rollout"] = {"backend": {"name": "scripted", "options": {"turns": ["4 and 5 and 6"]}}, "stop": ["d 5"]}
    loaded = load_recipe(write_recipe(basic), plugins=plugins)
    backend = loaded.backend()
    with loaded.engine(backend) as engine:
        assert [t.final_response for t in engine.run(loaded.eval_tasks(1))] == ["4 and 5"]
    asyncio.run(backend.close())
    basic["rollout"]["stop"] = [""]
    with pytest.raises(UsageError, match=r"rollout\.stop"):
        load_recipe(write_recipe(basic), plugins=plugins)


def test_an_environment_is_leased_stepped_and_summed(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, model: Path
) -> None:
    del basic["data"], basic["rewards"]
    basic |= {"agent": "text-action", "environment": {"name": "counter", "capacity": 1}}
    basic["rollout"] = {"backend": {"name": "scripted", "options": {"turns": ["go", "go", "go"]}}}
    loaded = load_recipe(write_recipe(basic), plugins=plugins)
    backend = loaded.backend()
    with loaded.engine(backend) as engine:
        chains = list(engine.run(loaded.eval_tasks(3)))
    assert [(len(t.turns), t.reward, t.error) for t in chains] == [(2, 1.0, None)] * 3


def test_a_resolved_recipe_finds_its_own_python_source_from_anywhere(
    basic: dict[str, Any], write_recipe: Write, plugins: Plugins, tmp_path: Path
) -> None:
    basic["data"] = {"train": "demo_parts.py:rows", "eval": "demo_parts.py:rows"}
    elsewhere = tmp_path / "runs" / "one"
    elsewhere.mkdir(parents=True)
    resolved = load_recipe(write_recipe(basic), plugins=plugins).resolved()
    (elsewhere / "recipe.yaml").write_text(yaml.safe_dump(resolved))
    again = load_recipe(elsewhere / "recipe.yaml", plugins=Plugins.load())
    assert len(again.eval_tasks(2)) == 2
