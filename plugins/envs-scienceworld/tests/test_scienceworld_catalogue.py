"""Lists of tasks, the commands as tools, wrong options: what needs no simulator."""

from __future__ import annotations

import json

import pytest
from agentfly_envs_scienceworld import catalogue
from agentfly_envs_scienceworld.actions import LONGEST, action_tools, as_call, tidy
from agentfly_envs_scienceworld.command import command
from agentfly_envs_scienceworld.environment import ScienceWorld
from agentfly_envs_scienceworld.simulator import Simulator, find_java
from agentfly_envs_scienceworld.tasks import scienceworld_tasks
from click.testing import CliRunner

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.load import load_recipe
from agentfly_core.testing import check_plugin, check_tool
from agentfly_core.types import ResourceError, UsageError


def test_the_plugin_is_in_order():
    check_plugin("agentfly_envs_scienceworld")
    assert "scienceworld" in Plugins.load().registry("environments").names()


def test_the_subsets_are_the_official_ones():
    sizes = [len(scienceworld_tasks("train", subset=subset)) for subset in ("train", "dev", "test")]
    assert sizes == [3592, 1796, 1819]
    assert sum(sizes) == sum(count for _, count in catalogue.TASKS.values()) == 7207
    assert len(catalogue.TASKS) == 30
    parts = [catalogue.variations("boil", subset) for subset in catalogue.SUBSETS]
    assert parts == [range(14), range(14, 21), range(21, 30)]


def test_the_tasks_take_turns():
    first = scienceworld_tasks("train")[:30]
    assert [task.fields["task"] for task in first] == list(catalogue.TASKS)
    assert {task.fields["variation"] for task in first} == {0}
    chosen = scienceworld_tasks("eval", tasks=["1-1", "grow-plant"], limit_per_task=2)
    assert [task.id for task in chosen] == ["boil/14", "grow-plant/62", "boil/15", "grow-plant/63"]
    assert next(iter(ScienceWorld.tasks("eval"))).id == "boil/14"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"subset": "valid"}, "subset of ScienceWorld"),
        ({"tasks": ["boyl"]}, "did you mean 'boil'"),
        ({"limit_per_task": 0}, "limit_per_task must be"),
    ],
)
def test_wrong_lists_are_refused(options, what):
    with pytest.raises(UsageError, match=what):
        scienceworld_tasks("train", **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"simplifications": ["hard"]}, "simplification of ScienceWorld"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"failure": "never"}, "option 'failure'"),
        ({"invalid_penalty": -1.0}, "invalid_penalty must be"),
    ],
)
def test_wrong_options_are_refused_before_a_simulator_starts(options, what, monkeypatch):
    monkeypatch.setattr(Simulator, "__init__", lambda self: pytest.fail("it was started"))
    with pytest.raises(UsageError, match=what):
        ScienceWorld(**options)


def test_a_machine_without_java_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"none on the PATH\. Install it: apt install openjdk"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(UsageError, match="none in JAVA_HOME"):
        find_java()


def test_a_java_that_does_not_start_is_quoted(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho this machine has no memory >&2\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ResourceError, match="exit code 3, it last said: this machine has no memory"):
        Simulator()


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("look around", ("look_around", {})),
        ("look in red box", ("look_in", {"object": "red box"})),
        ("go to kitchen", ("go_to", {"place": "kitchen"})),
        ("teleport to kitchen", ("teleport", {"place": "kitchen"})),
        ("use thermometer on steam in pot", ("use_on", {"object": "thermometer", "target": "steam in pot"})),
        ("connect red wire terminal 1 to anode in battery",
         ("connect", {"object": "red wire terminal 1", "target": "anode in battery"})),
        ("pour cup into metal pot", ("pour", {"object": "cup", "container": "metal pot"})),
        ("drop seed jar", ("put_down", {"object": "seed jar"})),
        ("wait", ("wait", {})),
        ("wait1", ("wait_briefly", {})),
        ("focus on agent", ("focus_on", {"object": "agent"})),
        ("0", ("choose", {"number": "0"})),
    ],
)  # fmt: skip
def test_commands_as_tool_calls(said, call):
    assert as_call(said) == call
    tool = next(tool for tool in action_tools() if tool.name == call[0])
    written = (tool.action or tool.name).format(**tool.check_arguments(call[1]))
    assert written == said.replace("drop", "put down")


def test_tools_keep_their_contract():
    for tool in action_tools():
        check_tool(tool)
    with pytest.raises(ValueError, match="no tool stands"):
        as_call("reset task; rm")


def test_actions_are_tidied():
    assert tidy("  go\nto \t kitchen ") == "go to kitchen"
    assert tidy("x" * 100_000) == "x" * LONGEST
    assert tidy("\ud800 look") == "? look"


def test_the_recipes_load():
    for name in ("smoke", "qwen"):
        recipe = load_recipe(f"scienceworld:{name}", ["model.path=tiny"])
        assert recipe.environment_spec().kind == "worker"


def test_tasks_are_listed():
    rows = json.loads(CliRunner().invoke(command, ["tasks", "--json"]).output)
    assert rows[0] == {"task": "boil", "number": "1-1", "train": 14, "dev": 7, "test": 9}
    assert len(CliRunner().invoke(command, ["tasks"]).output.splitlines()) == 30
