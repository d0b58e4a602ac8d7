"""The plugin as others see it: names, recipes, options, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.plugins import Plugins
from agentfly_core.recipes.load import load_recipe
from agentfly_core.testing import check_plugin
from agentfly_core.types import UsageError

DATA = Path(os.environ.get("AGENTFLY_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
TOOLS = {"code_interpreter", "shell", "read_file", "write_file", "edit_file", "list_files", "search_files"}


def test_everything_it_offers_can_be_used() -> None:
    check_plugin("agentfly_tools_code")
    plugins = Plugins.load()
    for name in TOOLS:
        tool = plugins.registry("tools").get(name)
        assert tool.name == name
        assert tool.schema()["function"]["parameters"]["type"] == "object"
    assert {"code_tests", "program_output"} <= set(plugins.registry("rewards").names())
    assert plugins.registry("agents").get("code").name == "code"


def test_the_agent_is_imported_lazily() -> None:
    code = (
        "import sys, agentfly_tools_code as p\nassert 'agentfly_core.agents.opening' not in sys.modules\n"
        "assert p.CodeAgent.name == 'code'\ntry:\n    p.nothing\nexcept AttributeError:\n    print('good')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "good\n"


def test_the_smoke_recipe_is_sound() -> None:
    pytest.importorskip("agentfly_models_tiny")
    loaded = load_recipe("code:smoke")
    loaded.check_training()
    (tool,) = loaded.tools
    assert (tool.seconds, tool.max_output) == (10.0, 200)  # type: ignore[attr-defined]
    row = next(loaded.sft_rows())
    assert [m["role"] for m in row["messages"]][:2] == ["user", "assistant"]


def test_the_gsm8k_recipe_reads_the_users_data() -> None:
    pytest.importorskip("agentfly_models_tiny")
    if not (DATA / "gsm8k").is_dir():
        pytest.skip(f"no GSM8K rows under {DATA}: set AGENTFLY_TEST_DATA")
    paths = [f"data.train={DATA}/gsm8k/train_800.jsonl", f"data.eval={DATA}/gsm8k/test_200.jsonl"]
    loaded = load_recipe("code:gsm8k", [*paths, "model.path=tiny", "model.dtype=float32"])
    loaded.check_training()
    tasks = loaded.eval_tasks()
    assert len(tasks) == 200
    assert "#### " in tasks[0].fields["answer"]
    assert tasks[0].messages[0]["content"].startswith("Amber, Micah, and Ahito ran 52 miles")


def test_a_recipes_options_are_checked() -> None:
    pytest.importorskip("agentfly_models_tiny")
    with pytest.raises(UsageError, match="did you mean 'stateless'"):
        load_recipe("code:smoke", ["agent.tools=[{name: code_interpreter, options: {statless: true}}]"])
    with pytest.raises(UsageError, match="acts through the tool 'code_interpreter' alone"):
        load_recipe("code:smoke", ["agent.tools=[shell]"]).check_training()


@pytest.mark.usefixtures("resources")
def test_a_tool_can_be_called_from_the_command_line() -> None:
    done = CliRunner().invoke(cli, ["tools", "call", "code_interpreter", json.dumps({"code": "x = 6\nx * 7"})])
    assert (done.exit_code, done.stdout) == (0, "42\n")


def test_a_call_without_a_sandbox_ends_with_the_reason_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    command = [str(Path(sys.executable).with_name("agentfly")), "tools", "call", "code_interpreter", '{"code": "1"}']
    environment = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:1", "AGENTFLY_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [*command, "--option", "sandbox.kind=docker"], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no Docker engine answers at tcp://127.0.0.1:1: start one")


@pytest.mark.torch
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("resources")
def test_the_smoke_recipe_trains(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("agentfly_models_tiny")
    small = ("train.steps=1", "train.tasks_per_step=2", "train.chains_per_task=2", "evaluation.tasks=2", "sft.steps=20")
    command = [str(Path(sys.executable).with_name("agentfly"))]
    for arguments in (["sft", "code:smoke", "--output", "model"], ["train", "code:smoke", "model.path=model"]):
        done = subprocess.run([*command, *arguments, *small], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    rows = [
        json.loads(line)
        for metrics in tmp_path.glob("runs/*/metrics.jsonl")  # of the supervised run, and of this one
        for line in metrics.read_text().splitlines()
    ]
    (step,) = [row for row in rows if "reward/mean" in row and row["step"] == 1]
    assert 0.0 <= step["reward/mean"] <= 1.0
