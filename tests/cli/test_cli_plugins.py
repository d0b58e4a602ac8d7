"""``agentfly plugins``, ``tools`` and ``rewards``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from agentfly_core import hookimpl, reward, tool

@tool
def roll(sides: int = 6) -> int:
    "Roll a die."
    return sides

@reward
def lucky(final_response, target):
    "1 if lucky."
    return 1.0

@hookimpl
def register_tools(register):
    register(roll)
    register("af_cli_lazy:hidden", name="hidden", summary="Not there.")

@hookimpl
def register_rewards(register):
    register(lucky)
"""
HEAVY = """
import numpy
from agentfly_core import hookimpl

@hookimpl
def register_tools(register): ...
"""


def add_good(site) -> None:
    site.add("dist-good", "[agentfly]\ngood = af_cli_good\n", good=GOOD, lazy="")


def add_broken(site) -> None:
    site.add("dist-broken", "[agentfly]\nbroken = af_cli_broken\n", broken="import nowhere_to_be_found")


def test_list_shows_states_causes_and_origins(site, agentfly):
    add_good(site)
    add_broken(site)
    done = agentfly("plugins", "list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert done.exit_code == 0
    assert rows["good"]["state"] == "loaded"
    assert rows["good"]["provides"] == {"tools": ["hidden", "roll"], "rewards": ["lucky"]}
    assert rows["broken"]["state"] == "failed"
    assert rows["broken"]["error"] == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    assert "traceback" not in rows["broken"]
    assert rows["core"]["provides"]["tools"] == ["answer", "calculator"]
    text = agentfly("plugins", "list").output
    assert "2 tools, 1 reward" in text
    assert "No module named 'nowhere_to_be_found'" in text
    assert "Traceback" not in text
    assert "Traceback" in agentfly("plugins", "list", "-v").output


def test_metadata_runs_no_plugin_code(site, agentfly):
    add_good(site)
    rows = json.loads(agentfly("plugins", "list", "--metadata", "--json").stdout)
    assert {"name": "good", "distribution": "dist-good", "version": "1.5", "target": "af_cli_good"} in rows
    assert "af_cli_good" not in sys.modules


def test_show(site, agentfly):
    add_good(site)
    add_broken(site)
    text = agentfly("plugins", "show", "good").output
    assert "good: loaded, from dist-good 1.5 (af_cli_good)" in text
    assert "Roll a die." in text
    (row,) = json.loads(agentfly("plugins", "show", "dist-good", "--json").stdout)
    assert {r["qualified"] for r in row["registrations"]} == {"good:roll", "good:hidden", "good:lucky"}
    assert "Traceback" in agentfly("plugins", "show", "broken").output
    unknown = agentfly("plugins", "show", "goood")
    assert (unknown.exit_code, unknown.stderr) == (2, "error: unknown plugin 'goood'; did you mean 'good'?\n")


def test_doctor_reports_every_fault(site, agentfly):
    pytest.importorskip("numpy")
    add_good(site)
    add_broken(site)
    site.add("dist-heavy", "[agentfly]\nheavy = af_cli_heavy\n", heavy=HEAVY)
    site.add("dist-clash", "[agentfly]\nclash = af_cli_clash\n", clash=GOOD.replace("af_cli_lazy:hidden", "math:pi"))
    site.add("dist-command", "[agentfly.commands]\ntools = af_cli_good:roll\nodd = af_cli_good:roll\n")
    done = agentfly("plugins", "doctor", "--json")
    assert done.exit_code == 1
    found = {(row["plugin"], row["problem"]) for row in json.loads(done.stdout)}
    problems = [f"{plugin}: {problem}" for plugin, problem in found]

    def said(*words: str) -> bool:
        return any(all(word in problem for word in words) for problem in problems)

    assert said("broken: failed: ModuleNotFoundError")
    assert said("good: ", "'good:hidden'", "cannot be imported from 'af_cli_lazy:hidden'")
    assert said("heavy: its register hooks import numpy")
    assert said("clash: ", "'hidden' must be a Tool")
    assert said("clash: tools 'roll' is also registered as good:roll")
    assert said("tools: its command 'tools' is hidden by the core's own")
    assert said("odd: ", "is no click command")


def test_doctor_is_content_with_the_core_of_a_light_plugin(site, agentfly):
    pytest.importorskip("torch")  # resolving everything imports everything
    site.add("dist-good", "[agentfly]\ngood = af_cli_good\n", good=GOOD, lazy="from af_cli_good import roll as hidden")
    done = agentfly("plugins", "doctor")
    assert done.exit_code == 0, done.output
    assert done.output.endswith(" 0 problems\n")


def test_tools_list_and_call(site, agentfly):
    add_good(site)
    rows = {row["name"]: row for row in json.loads(agentfly("tools", "list", "--json").stdout)}
    assert rows["roll"]["parameters"]["properties"] == {"sides": {"default": 6, "type": "integer"}}
    assert "cannot be imported" in rows["hidden"]["error"]
    text = agentfly("tools", "list").output
    assert "sides?" in text
    assert "Evaluate an arithmetic expression." in text
    done = agentfly("tools", "call", "calculator", '{"expression": "47*86+12"}')
    assert (done.exit_code, done.stdout) == (0, "4054\n")
    assert agentfly("tools", "call", "good:roll").stdout == "6\n"


HOLDER = """
import contextlib
from agentfly_core import ToolContext, tool

@contextlib.contextmanager
def held():
    yield "held"
    print("given back", flush=True)

@tool
async def hold(context: ToolContext) -> str:
    '''Hold something for as long as the chain lasts.'''
    return context.scope.enter_context(held())
"""


def test_a_called_tool_has_the_scope_of_a_chain(tmp_path, agentfly):
    (tmp_path / "holder.py").write_text(HOLDER)
    done = agentfly("tools", "call", "hold", "--plugin", str(tmp_path / "holder.py"))
    assert (done.exit_code, done.stdout) == (0, "given back\nheld\n"), done.output


def test_tools_call_tells_failures_from_wrong_usage(site, agentfly):
    failed = agentfly("tools", "call", "calculator", '{"expression": "1/0"}')
    assert (failed.exit_code, failed.stdout, "division by zero" in failed.stderr) == (1, "", True)
    invalid = agentfly("tools", "call", "calculator", '{"expresion": "1"}', "--json")
    assert invalid.exit_code == 1
    assert json.loads(invalid.stdout)["status"] == "invalid_arguments"
    for arguments in ("{", "[1]", '"1+1"'):
        wrong = agentfly("tools", "call", "calculator", arguments)
        assert (wrong.exit_code, wrong.stderr.startswith("error: the arguments")) == (2, True)
    unknown = agentfly("tools", "call", "calculater", "{}")
    assert (unknown.exit_code, "did you mean 'calculator'" in unknown.stderr) == (2, True)


def test_rewards_list(site, agentfly):
    add_good(site)
    rows = {row["name"]: row for row in json.loads(agentfly("rewards", "list", "--json").stdout)}
    assert rows["lucky"]["fields"] == ["target"]
    assert "tolerance=1e-09" in rows["numeric_match"]["options"]
    assert "lucky" in agentfly("rewards", "list").output


def test_own_files_are_loaded_and_failed_plugins_warned_of_once(site, agentfly, tmp_path):
    add_broken(site)
    own = tmp_path / "mine.py"
    own.write_text("from agentfly_core import tool\n@tool\ndef shout(text: str):\n    return text.upper()\n")
    done = agentfly("tools", "call", "shout", '{"text": "hi"}', "--plugin", str(own))
    assert (done.exit_code, done.stdout) == (0, "HI\n")
    assert done.stderr.count("warning: plugin 'broken' (dist-broken) failed: ModuleNotFoundError") == 1
    missing = agentfly("tools", "list", "--plugin", str(tmp_path / "none.py"))
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)


@pytest.fixture
def scaffold(site, agentfly, tmp_path) -> Path:
    done = agentfly("plugins", "new", "my-thing", "--into", str(tmp_path))
    assert done.exit_code == 0
    folder = tmp_path / "agentfly-plugin-my-thing"
    assert f"created {folder}" in done.output
    assert f"pip install -e {folder} && pytest {folder} && agentfly plugins show my-thing" in done.output
    return folder


def test_a_new_plugin_passes_its_own_tests(scaffold, site):
    """Installed as an editable install would: a path on sys.path and its metadata."""
    site.add("agentfly-plugin-my-thing", "[agentfly]\nmy-thing = agentfly_my_thing\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site.folder), str(scaffold), os.getcwd()])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(scaffold / "tests")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=scaffold,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_new_plugins_metadata_names_its_module(scaffold):
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((scaffold / "pyproject.toml").read_text())
    assert project["project"]["name"] == "agentfly-plugin-my-thing"
    assert project["project"]["entry-points"] == {"agentfly": {"my-thing": "agentfly_my_thing"}}
    assert (scaffold / "agentfly_my_thing" / "__init__.py").is_file()


def test_a_new_plugin_may_be_named_by_its_package(agentfly, tmp_path):
    done = agentfly("plugins", "new", "agentfly-plugin-foo", "--into", str(tmp_path))
    assert "agentfly plugins show foo\n" in done.stdout
    assert (tmp_path / "agentfly-plugin-foo" / "agentfly_foo" / "tools.py").is_file()


def test_new_refuses_bad_names_and_existing_folders(scaffold, agentfly, tmp_path):
    for name in ("my-thing", "agentfly-plugin-my-thing"):
        again = agentfly("plugins", "new", name, "--into", str(tmp_path))
        assert (again.exit_code, "agentfly-plugin-my-thing exists already" in again.stderr) == (2, True)
    for name in ("agentfly-plugin-", "My", "a b", "../x", "a--b", "1a"):
        wrong = agentfly("plugins", "new", name, "--into", str(tmp_path))
        assert (wrong.exit_code, "is no name for a plugin" in wrong.stderr) == (2, True)


def test_packaged_recipes_are_listed(site, agentfly):
    site.add("dist-recipes", "[agentfly.recipes]\nacme = af_cli_recipes\nlost = af_cli_lost\n")
    package = site.folder / "af_cli_recipes"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.yaml").write_text("# The first.\nname: one\n")
    (package / "two.yaml").write_text("name: two\n")
    (package / "three.yaml").write_text("# Learns Qwen2.5 to add (as in\n# school). More.\nname: x\n")
    (package / "four.yaml").write_text("# No full stop\n#   agentfly train acme:four\nname: x\n")
    done = agentfly("recipe", "list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["acme:one"] == {"name": "acme:one", "distribution": "dist-recipes", "about": "The first."}
    assert rows["acme:two"]["about"] == ""
    assert rows["acme:three"]["about"] == "Learns Qwen2.5 to add (as in school)."
    assert rows["acme:four"]["about"] == "No full stop"
    assert "af_cli_lost" in rows["lost"]["about"]
    assert done.exit_code == 0


def test_what_plugins_print_does_not_spoil_json(site, agentfly, tmp_path):
    (tmp_path / "chatty.py").write_text(
        "from agentfly_core import tool\n"
        "print('imported')\n\n\n"
        "@tool\n"
        "def echo(text: str) -> str:\n"
        '    """Say it again.\n\n    Args:\n        text: what.\n    """\n'
        "    print('called')\n"
        "    return text\n"
    )
    arguments = ("tools", "call", "echo", '{"text": "a"}', "--plugin", str(tmp_path / "chatty.py"))
    done = agentfly(*arguments, "--json")
    assert json.loads(done.stdout)["status"] == "ok"
    assert [line for line in done.stderr.splitlines() if line in ("imported", "called")] == ["imported", "called"]
    assert agentfly(*arguments).stdout.splitlines() == ["imported", "called", "a"]
