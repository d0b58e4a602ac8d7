"""The top-level command: what it loads, where commands come from, how errors leave it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import click
import pytest

from agentfly_core import __version__
from agentfly_core.cli import COMMANDS

HEAVY = {"torch", "transformers", "ray", "vllm", "numpy", "pyarrow", "tokenizers"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plugins", "list"], ["tools", "list"]])
def test_light_commands_import_nothing_heavy(arguments):
    script = (
        "import json, sys\nfrom agentfly_core.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not HEAVY & loaded
    if arguments == ["--help"]:
        assert not {f"agentfly_core.cli.{name}" for name in COMMANDS} & loaded
        assert "agentfly_core.plugins" not in loaded


def test_help_names_every_command_and_version_says_it(agentfly):
    text = agentfly("--help").output
    for name, summary in COMMANDS.items():
        assert name in text
        assert summary in text
    assert agentfly("--version").output == f"agentfly {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_exists_and_explains_itself(name):
    command = importlib.import_module(f"agentfly_core.cli.{name}").command
    assert isinstance(command, click.Command)
    assert command.help


def test_wrong_commands_and_options_exit_with_2(agentfly):
    wrong = agentfly("plugin")
    assert (wrong.exit_code, "did you mean 'plugins'?" in wrong.stderr) == (2, True)
    assert agentfly("--nope").exit_code == 2
    assert agentfly("tools", "call").exit_code == 2
    assert agentfly("tools", "nope").exit_code == 2


GREET = """
import click
from agentfly_core.types import AgentFlyError, UsageError

class Broken(AgentFlyError):
    exit_code = 3

@click.command()
@click.argument("name")
def command(name):
    if name == "lost":
        raise Broken("the way is gone")
    if name == "nobody":
        raise UsageError("there is nobody")
    if name == "stop":
        raise KeyboardInterrupt
    click.echo(f"hello {name}")
"""


def test_plugins_bring_commands_that_load_on_use(site, agentfly):
    points = "[agentfly.commands]\ngreet = af_cli_greet:command\nbroken = af_cli_broken:command\njunk = af_cli_junk:x\n"
    site.add("dist-a", points, greet=GREET, broken="raise ImportError('no luck')", junk="x = 3")
    text = agentfly("--help").output
    assert "greet" in text
    assert "(from dist-a)" in text
    assert "af_cli_greet" not in sys.modules
    assert agentfly("greet", "you").output == "hello you\n"
    broken = agentfly("broken")
    assert broken.exit_code == 2
    assert broken.stderr.startswith(
        "error: the command 'broken' of dist-a cannot be loaded from 'af_cli_broken:command'"
    )
    assert broken.stderr.endswith("ImportError: no luck\n")
    junk = agentfly("junk")
    assert (junk.exit_code, "is no click command but 3" in junk.stderr) == (2, True)


def test_errors_are_one_line_and_interrupts_exit_with_130(site, agentfly):
    site.add("dist-a", "[agentfly.commands]\ngreet = af_cli_greet:command\n", greet=GREET)
    wrong = agentfly("greet", "nobody")
    assert (wrong.exit_code, wrong.stderr, wrong.stdout) == (2, "error: there is nobody\n", "")
    lost = agentfly("greet", "lost")
    assert (lost.exit_code, lost.stderr) == (3, "error: the way is gone\n")
    stopped = agentfly("greet", "stop")
    assert (stopped.exit_code, stopped.stderr) == (130, "interrupted\n")


def test_two_plugins_with_one_command_and_one_with_the_cores(site, agentfly):
    point = "[agentfly.commands]\ngreet = af_cli_greet:command\nrewards = af_cli_greet:command\n"
    site.add("dist-a", point, greet=GREET)
    site.add("dist-b", "[agentfly.commands]\ngreet = af_cli_greet:command\n")
    both = agentfly("greet", "you")
    assert both.exit_code == 2
    assert "dist-a and by dist-b" in both.stderr
    assert "exact_match" in agentfly("rewards", "list").output


def test_it_runs_as_a_module():
    environment = {**os.environ, "PYTHONWARNINGS": "error::ImportWarning"}
    done = subprocess.run(
        [sys.executable, "-m", "agentfly_core", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (0, f"agentfly {__version__}\n")
