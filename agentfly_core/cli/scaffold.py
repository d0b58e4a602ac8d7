"""What ``agentfly plugins new`` writes."""

from __future__ import annotations

import re
from pathlib import Path

from agentfly_core import __version__
from agentfly_core.types.errors import UsageError

PREFIX = "agentfly-plugin-"

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "agentfly-plugin-{name}"
version = "0.1.0"
description = "An AgentFly plugin"
requires-python = ">=3.10"
dependencies = ["agentfly-core>={version}"]

[project.entry-points.agentfly]
{name} = "{package}"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""

_INIT = '''\
"""Hooks of the plugin. Import nothing heavy here: every `agentfly` command loads this module."""

from agentfly_core import hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_tools(register):
    register("{package}.tools:word_count", name="word_count", summary="Count the words of a text.")


@hookimpl
def register_rewards(register):
    register("{package}.rewards:brevity", name="brevity", summary="1 for an answer of few words.")
'''

_TOOLS = '''\
from agentfly_core import tool


@tool
def word_count(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text to count in.
    """
    return len(text.split())
'''

_REWARDS = '''\
from agentfly_core import reward


@reward
def brevity(final_response: str, max_words: int = 20) -> float:
    """1 for an answer of at most `max_words` words (a data-set field), less for longer ones."""
    return min(1.0, max_words / max(len(final_response.split()), 1))
'''

_TEST = """\
from agentfly_core.plugins import Plugins
from agentfly_core.testing import call, check_plugin, check_reward, check_tool, play

PLUGINS = Plugins.load(warn=False)
WORD_COUNT = PLUGINS.registry("tools").get("{name}:word_count")
BREVITY = PLUGINS.registry("rewards").get("{name}:brevity")


def test_the_plugin_keeps_the_rules():
    check_plugin("{name}")


def test_word_count():
    check_tool(WORD_COUNT, calls=[{{"text": "one two three"}}, {{"text": ""}}])


def test_brevity():
    check_reward(BREVITY, fields={{"max_words": 2}}, responses=["one", "one two three"])


def test_a_chain():
    turns = [call("word_count", text="one two three"), "There are three words in it."]
    chain = play(turns, "How many words?", tools=[WORD_COUNT], reward=BREVITY)
    assert chain.turns[0].outcomes[0].content == "3"
    assert chain.reward == 1.0
"""

_README = """\
# agentfly-plugin-{name}

An AgentFly plugin with the tool `word_count` and the reward `brevity`.

    pip install -e .
    pytest
    agentfly plugins show {name}
    agentfly tools call word_count '{{"text": "one two three"}}'
"""


def create(name: str, into: str | Path) -> Path:
    """Write the package ``agentfly-plugin-NAME`` into a new folder of that name, which is returned.

    Args:
        name: of the plugin; that of its package means the same.

    Raises:
        UsageError: the name will not do, or the folder exists.
    """
    name = name.removeprefix(PREFIX)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"{name!r} is no name for a plugin: lower-case letters and digits in words joined by '-'")
    folder = Path(into) / f"{PREFIX}{name}"
    if folder.exists():
        raise UsageError(f"{folder} exists already")
    package = f"agentfly_{name.replace('-', '_')}"
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"{package}/__init__.py": _INIT,
        f"{package}/tools.py": _TOOLS,
        f"{package}/rewards.py": _REWARDS,
        "tests/test_plugin.py": _TEST,
    }
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.format(name=name, package=package, version=__version__), encoding="utf-8")
    return folder
