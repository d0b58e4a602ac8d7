"""``check_plugin`` passes the project's plugins and finds what is wrong with others."""

from __future__ import annotations

import textwrap

import pytest

from agentfly_core.plugins import Plugins
from agentfly_core.testing import check_plugin
from agentfly_core.types import UnknownName

GOOD = """
from agentfly_core import hookimpl, tool

AGENTFLY_API = (1, 1)

@tool
def roll(sides: int = 6) -> int:
    "Roll a die."
    return sides

@hookimpl
def register_tools(register):
    register(roll)
"""


@pytest.fixture
def plugin(tmp_path):
    """Maker of a plugin file."""

    def make(text):
        path = tmp_path / "mine.py"
        path.write_text(textwrap.dedent(text))
        return path

    return make


def test_built_ins_pass():
    check_plugin("core", resolve=False)


@pytest.mark.torch
def test_built_ins_resolve():
    pytest.importorskip("torch")
    check_plugin("core")


@pytest.mark.parametrize("name", ["qwen", "tiny"])
def test_installed_plugins_pass(name):
    pytest.importorskip("tokenizers")
    if name not in {r.name for r in Plugins.load(warn=False).records}:
        pytest.skip(f"the plugin {name!r} is not installed")
    check_plugin(name)


def test_a_file_and_a_module_pass(plugin, monkeypatch):
    path = plugin(GOOD)
    check_plugin(path)
    monkeypatch.syspath_prepend(str(path.parent))
    check_plugin("mine")


def test_a_plugin_without_an_api_version(plugin, found):
    with found("AGENTFLY_API is not declared"):
        check_plugin(plugin(GOOD.replace("AGENTFLY_API = (1, 1)", "")))


def test_a_lazy_part_that_is_not_there(plugin, found):
    with found("cannot be imported from 'math:no_such_thing'"):
        check_plugin(plugin(GOOD + "    register('math:no_such_thing', name='lazy')\n"))


def test_a_lazy_part_of_another_kind(plugin, found):
    with found("'pi' must be a Tool"):
        check_plugin(plugin(GOOD + "    register('math:pi', name='pi')\n"))


def test_a_heavy_import_in_a_hook(plugin, found):
    pytest.importorskip("numpy")
    with found("loading it imports numpy"):
        check_plugin(plugin(GOOD + "    import numpy\n"))


def test_a_plugin_that_does_not_load(plugin, found):
    with found("division by zero"):
        check_plugin(plugin("1 / 0"))
    with found("it supports plugin API 7 to 9"):
        check_plugin(plugin(GOOD.replace("(1, 1)", "(7, 9)")))


def test_an_unknown_plugin():
    with pytest.raises(UnknownName, match="unknown plugin 'no_such_plugin'"):
        check_plugin("no_such_plugin")
