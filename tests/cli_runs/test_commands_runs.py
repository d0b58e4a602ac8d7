"""The commands over recipes and runs, with a scripted model and a learner that keeps the contract."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from agentfly_core.runs import RunFolder

Run = Callable[..., Result]


def only_run(workspace: Path) -> RunFolder:
    [path] = (workspace / "runs").iterdir()
    return RunFolder.open(path)


def test_recipe_show_and_schema(agentfly: Run, workspace: Path) -> None:
    shown = agentfly("recipe", "show", "recipe.yaml", "train.optimizer.lr=1e-4")
    assert shown.exit_code == 0, shown.output
    assert yaml.safe_load(shown.stdout)["train"]["optimizer"]["lr"] == 0.0001
    as_json = json.loads(agentfly("recipe", "show", "recipe.yaml", "--json").stdout)
    assert as_json["data"]["train"]["source"] == str(workspace / "train.jsonl")
    assert "train.optimizer.lr" in agentfly("recipe", "schema").stdout
    assert json.loads(agentfly("recipe", "schema", "--json").stdout)["title"] == "Recipe"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "none.yaml"], "recipe none.yaml does not exist"),
        (["train", "recipe.yaml", "data.train=bad.jsonl"], "bad.jsonl:2: not JSON: Expecting value"),
        (["train", "recipe.yaml", "data.train=none.jsonl"], "none.jsonl does not exist"),
        (["train", "recipe.yaml", "agent.tools=[duoble]"], "unknown tool 'duoble'; did you mean 'double'"),
        (["train", "recipe.yaml", "model.template=qwen2.5"], "pip install agentfly-plugin-templates-qwen"),
        (["train", "recipe.yaml", "data.train=bare.jsonl"], "reward 'is_right' needs the field 'answer', which"),
        (["train", "recipe.yaml", "model.path=other"], "model.template 'mini' with the model"),
        (["train", "recipe.yaml", "train.steps=ten"], "train.steps (set by an override): must be a valid integer, got"),
        (["train", "recipe.yaml", "train.stepz=10"], "train.stepz (set by an override): unknown key; did you mean"),
        (["train", "recipe.yaml", "steps"], "override 'steps' is not of the form key=value"),
        (["train", "recipe.yaml", "learner.options.refuse=true"], "the learner 'stub' cannot honour this recipe"),
        (["train", "recipe.yaml", "learner.options.lacks=ray"], "needs the package 'ray'. Install it with: pip"),
        (["train", "recipe.yaml", "plugins=[broken.py]"], "ZeroDivisionError: division by zero (line 2)"),
        (["train", "--resume", "none"], "unknown run 'none'"),
        (["eval", "recipe.yaml", "--model", "./none"], "there is no model folder './none'"),
        (["eval", "recipe.yaml", "--run", "a", "--model", "b"], "--run and --model exclude each other"),
        (["eval", "recipe.yaml", "data.eval=null"], "data.eval: missing; name a file or a module:function"),
        (["train", "recipe.yaml", "data.eval=empty.jsonl"], "empty.jsonl has no rows"),
        (["eval", "recipe.yaml", "data.eval=empty.jsonl"], "empty.jsonl has no rows"),
        (["run", "recipe.yaml", "hi", "data.train=empty.jsonl"], "data.train: "),
        (["sft", "recipe.yaml"], "sft: missing; name the conversations"),
        (["sft", "recipe.yaml", "--output", "model"], "--output model exists and is not empty"),
        (["run", "none.yaml", "hi"], "recipe none.yaml does not exist"),
        (["runs", "show"], "there are no runs in runs/"),
        (["runs", "list", "--root", "none"], "--root: there is no folder none"),
        (["resources", "status", "--root", "none"], "--root: there is no folder none"),
        (["runs", "show", "x"], "unknown run 'x' (looked in runs/)"),
        (["recipe", "show", "odd:one"], "unknown recipe package 'odd'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_error_and_exit_code_2(
    agentfly: Run, workspace: Path, arguments: list[str], says: str
) -> None:
    (workspace / "bad.jsonl").write_text('{"prompt": "x", "answer": 1}\n{"prompt": \n')
    (workspace / "empty.jsonl").write_text("")
    (workspace / "bare.jsonl").write_text('{"prompt": "x"}\n')
    (workspace / "broken.py").write_text("\n1 / 0\n")
    other = workspace / "other"
    other.mkdir()
    other.joinpath("tokenizer.json").write_text(
        (workspace / "model" / "tokenizer.json").read_text().replace("<|end|>", "<|fin|>")
    )
    result = agentfly(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert not (workspace / "runs").exists()


def test_a_command_without_recipe_says_so(agentfly: Run) -> None:
    for command in ("train", "eval"):
        result = agentfly(command, "train.steps=3")
        assert result.exit_code == 2
        assert "name a RECIPE" in result.stderr


def test_train_shows_its_steps_and_leaves_a_run(agentfly: Run, workspace: Path) -> None:
    result = agentfly("train", "recipe.yaml", "train.steps=3")
    assert result.exit_code == 0, result.output
    folder = only_run(workspace)
    lines = result.stderr.splitlines()
    assert lines[0] == f"run folder: {folder.path}"
    assert [line.partition("  ")[0] for line in lines[1:]] == [
        "step 1/3",
        "step 2/3",
        "step 3/3",
        "held-out success after step 3: sampled 0.900",
    ]
    assert "reward 0.100  success 0.500  calls/chain 1.000  tokens/s -  time left 0:0" in lines[1]
    assert "sampled" in result.stdout
    assert result.stdout.splitlines()[-1] == f"run folder: runs/{folder.path.name}"
    assert (folder.status().state, folder.status().step) == ("finished", 3)
    assert yaml.safe_load(folder.recipe_path.read_text())["train"]["steps"] == 3


def test_train_as_json(agentfly: Run, workspace: Path) -> None:
    said = json.loads(agentfly("train", "recipe.yaml", "--json").stdout)
    assert said["run"] == str(only_run(workspace).path)
    assert (said["state"], said["step"]) == ("finished", 4)
    assert [(row["step"], row["mode"], row["success"]) for row in said["evaluation"]] == [
        (0, "sampled", 0.1),
        (4, "sampled", 0.9),
    ]


def test_a_failed_run_is_listed_as_failed(agentfly: Run, workspace: Path) -> None:
    result = agentfly("train", "recipe.yaml", "learner.options.fail_at=2")
    assert isinstance(result.exception, RuntimeError)
    [row] = json.loads(agentfly("runs", "list", "--json").stdout)
    assert (row["state"], row["step"]) == ("failed", 1)
    assert "boom" in agentfly("runs", "show").stdout


def test_resume(agentfly: Run, workspace: Path) -> None:
    agentfly("train", "recipe.yaml", "learner.options.fail_at=4")
    folder = only_run(workspace)
    assert folder.checkpoints.latest() == (2, folder.path / "checkpoints" / "step-000002")
    changed = agentfly("train", "recipe.yaml", "seed=5", "--resume", folder.path.name)
    assert changed.exit_code == 2
    assert "was begun with another recipe: learner.options, learner.options.fail_at, seed changed" in changed.stderr
    failed_again = agentfly("train", "--resume", str(folder.path))
    assert isinstance(failed_again.exception, RuntimeError)
    text = folder.recipe_path.read_text().replace("fail_at: 4", "fail_at: 0")
    folder.recipe_path.write_text(text)
    result = agentfly("train", "train.steps=6", "--resume", "demo")
    assert result.exit_code == 0, result.output
    assert [row["step"] for row in folder.metrics.read()] == [0, 1, 2, 3, 4, 5, 6]
    again = agentfly("train", "train.steps=6", "--resume", "demo")
    assert again.exit_code == 2
    assert "has all its 6 steps" in again.stderr
    assert folder.status().state == "finished"


def test_a_running_run_is_not_resumed(agentfly: Run, workspace: Path) -> None:
    agentfly("train", "recipe.yaml")
    folder = only_run(workspace)
    folder.update_status("running")
    result = agentfly("train", "--resume", "demo", "train.steps=9")
    assert result.exit_code == 2
    assert "is running (process" in result.stderr
    folder.release()


def test_a_killed_run_is_resumed_though_its_pid_is_in_use(agentfly: Run, workspace: Path) -> None:
    agentfly("train", "recipe.yaml")
    folder = only_run(workspace)
    folder.update_status("running")
    folder.release()
    [row] = json.loads(agentfly("runs", "list", "--json").stdout)
    assert row["state"] == "running (stale)"
    result = agentfly("train", "--resume", "demo", "train.steps=6")
    assert result.exit_code == 0, result.output
    assert (folder.status().state, folder.status().step) == ("finished", 6)


def test_of_two_who_resume_a_run_one_is_refused(
    agentfly: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentfly("train", "recipe.yaml")
    folder = only_run(workspace)
    monkeypatch.setattr("agentfly_core.runs.lock.take", lambda *_, **__: False)  # the other was first
    result = agentfly("train", "--resume", "demo", "train.steps=9")
    assert result.exit_code == 2
    assert "is running (another process" in result.stderr
    assert (folder.status().state, folder.status().step) == ("finished", 4)


def test_runs_list_and_show(agentfly: Run, workspace: Path) -> None:
    assert json.loads(agentfly("runs", "list", "--json").stdout) == []
    agentfly("train", "recipe.yaml")
    agentfly("train", "recipe.yaml", "name=other")
    rows = json.loads(agentfly("runs", "list", "--json").stdout)
    assert {(row["state"], row["step"], row["reward"], row["success"]) for row in rows} == {("finished", 4, 0.4, 0.5)}
    shown = json.loads(agentfly("runs", "show", "other", "--json").stdout)
    assert shown["run"].startswith("other-")
    assert shown["checkpoints"] == [2, 4]
    assert [row["step"] for row in shown["evaluation"]] == [0, 4]
    assert shown["metrics"]["reward/mean"] == 0.4
    assert "finished" in agentfly("runs", "list").stdout
    assert "reward/mean" in agentfly("runs", "show", str(workspace / "runs" / shown["run"])).stdout
    (workspace / "runs" / shown["run"] / "status.json").write_text("{")
    states = {row["state"] for row in json.loads(agentfly("runs", "list", "--json").stdout)}
    assert states == {"finished", "damaged"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("status.json", '{"state": "running", "pid": "x", "host": "vm"}'),
        ("status.json", '{"state": "running", "pid": 1e400}'),
        ("status.json", '{"state": "finished", "started": "x"}'),
        ("status.json", '{"state": "finished", "started": 1e300}'),
        ("status.json", '{"state": "finished", "step": "x"}'),
        ("status.json", '{"state": "finished", "error": {}}'),
        ("status.json", '{"state": "odd"}'),
        ("status.json", "[" * 100_000),
        ("status.json", None),
        ("metrics.jsonl", '{"step": "x", "reward/mean": {}}\n'),
        ("metrics.jsonl", '{"step": 1, "reward/mean": {}}\n'),
        ("metrics.jsonl", '{"step": 1, "eval/sampled/success": "x"}\n'),
        ("metrics.jsonl", None),
    ],
)
def test_a_damaged_run_hides_no_other(agentfly: Run, workspace: Path, file: str, text: str | None) -> None:
    agentfly("train", "recipe.yaml")
    agentfly("train", "recipe.yaml", "name=other")
    [path] = (workspace / "runs").glob("other-*")
    (path / file).unlink()
    (path / file).mkdir() if text is None else (path / file).write_text(text)
    listed = agentfly("runs", "list", "--json")
    assert listed.exit_code == 0, listed.output
    assert {row["run"][:5]: row["state"] for row in json.loads(listed.stdout)} == {
        "demo-": "finished",
        "other": "damaged",
    }
    shown = agentfly("runs", "show", str(path))
    assert shown.exit_code == 2
    [line] = shown.stderr.splitlines()
    assert line.startswith(f"error: {path / file}")


def test_json_has_null_for_what_is_no_finite_number(agentfly: Run, workspace: Path) -> None:
    agentfly("train", "recipe.yaml")
    only_run(workspace).metrics.append(5, {"reward/mean": math.nan, "eval/sampled/success": math.inf})
    shown = agentfly("runs", "show", "--json").stdout
    assert "NaN" not in shown
    assert json.loads(shown)["metrics"] == {"step": 5, "reward/mean": None, "eval/sampled/success": None}
    assert json.loads(shown)["evaluation"][-1]["success"] is None
    assert "NaN" not in agentfly("runs", "list", "--json").stdout


def test_a_metric_named_like_an_evaluation_is_none(agentfly: Run, workspace: Path) -> None:
    agentfly("train", "recipe.yaml")
    only_run(workspace).metrics.append(5, {"eval/odd": 1.0})
    assert agentfly("runs", "show").exit_code == 0


def test_the_name_of_a_recipe_is_its_newest_run(agentfly: Run, workspace: Path) -> None:
    for name in ("demo", "demo", "demo-sft", "demo two"):
        agentfly("train", "recipe.yaml", f"name={name}")
    newest = max(
        (p for p in (workspace / "runs").iterdir() if p.name.startswith("demo-2")),
        key=lambda p: json.loads((p / "status.json").read_text())["started"],
    )
    assert json.loads(agentfly("runs", "show", "demo", "--json").stdout)["run"] == newest.name
    assert json.loads(agentfly("runs", "show", "demo two", "--json").stdout)["run"].startswith("demo-two-2")
    several = agentfly("runs", "show", "dem")
    assert several.exit_code == 2
    assert "may be demo-" in several.stderr
    assert "write more of the name" in several.stderr


def test_run_shows_turns_calls_and_results(agentfly: Run) -> None:
    result = agentfly("run", "recipe.yaml", "What is 2 + 2?")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == ["turn 1", '  calls: double({"x": 2})', "  double (ok): 4"]
    assert lines[3:6] == ["turn 2", "  says: 4", "answer: 4"]
    assert lines[6].startswith("(completed after 2 turns")


def test_run_on_a_held_out_task_with_several_chains(agentfly: Run) -> None:
    result = agentfly("run", "recipe.yaml", "--chains", "2")
    assert sorted(line for line in result.stdout.splitlines() if "reward" in line) == ["[0] reward: 0", "[1] reward: 0"]
    (first,) = json.loads(agentfly("run", "recipe.yaml", "agent.max_turns=1", "--json").stdout)
    assert (first["messages"][0]["content"], first["turns"]) == ("what is 0?", 1)
    (odd,) = json.loads(agentfly("run", "recipe.yaml", "x=5?", "agent.max_turns=1", "--json").stdout)
    assert odd["messages"][0]["content"] == "x=5?"
    said = json.loads(agentfly("run", "recipe.yaml", "Hm?", "agent.max_turns=1", "--json").stdout)
    assert [(c["status"], c["turns"], c["reward"]) for c in said] == [("max_turns", 1, None)]


def test_what_a_model_says_cannot_drive_the_terminal(agentfly: Run) -> None:
    result = agentfly("run", "recipe.yaml", "hi", 'rollout.backend.options.turns=["\\e[2Jred [bold]"]')
    assert "  says: \\x1b[2Jred [bold]" in result.stdout


def test_eval_counts_every_mode(agentfly: Run, workspace: Path) -> None:
    pytest.importorskip("torch")
    result = agentfly("eval", "recipe.yaml", "evaluation.tasks=8", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["model"] == str(workspace / "model")
    found = [(r["mode"], r["tasks"], r["success"], r["reward"], r["tools_per_chain"]) for r in said["evaluation"]]
    assert found == [("sampled", 8, 1 / 8, 1 / 8, 1.0), ("greedy", 8, 1 / 8, 1 / 8, 1.0)]
    assert "greedy" in agentfly("eval", "recipe.yaml").stdout


def test_eval_takes_the_weights_of_a_run(agentfly: Run, workspace: Path) -> None:
    pytest.importorskip("torch")
    agentfly("train", "recipe.yaml")
    folder = only_run(workspace)
    nothing = agentfly("eval", "--run", "demo")
    assert nothing.exit_code == 2
    assert "found no tokenizer at" in nothing.stderr  # the stub's checkpoint
    folder.write_model(
        lambda path: (
            path.joinpath("tokenizer.json").write_bytes((workspace / "model/tokenizer.json").read_bytes()) and None
        )
    )
    said = json.loads(agentfly("eval", "evaluation.tasks=2", "--run", "demo", "--json").stdout)
    assert said["model"] == str(folder.model_path)
    assert said["evaluation"][0]["tasks"] == 2
