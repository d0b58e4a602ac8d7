"""Options that a recipe gives to a tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.plugins import Plugins
from agentfly_core.recipes.assemble import build_tool
from agentfly_core.recipes.load import load_recipe
from agentfly_core.types import UsageError

SHELF = """
from pathlib import Path
from agentfly_core.recipes.schema import Section
from agentfly_core.tools import configurable, tool

class Rules(Section):
    strict: bool = True

@configurable(needs=("table",))
def shelf(*, table: Path | None = None, limit: int = 3, rules: Rules = Rules()):
    @tool
    def shelf(word: str) -> str:
        "Look a word up."
        return f"{table} {limit} {word}"

    return shelf
"""


@pytest.fixture
def with_shelf(basic: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "shelves.py").write_text("from __future__ import annotations\n" + SHELF)
    basic["plugins"].append("shelves.py")
    return basic


def load(data: dict[str, Any], write: Callable[[dict[str, Any]], Path], plugins: Plugins) -> Any:
    return load_recipe(write(data), plugins=plugins)


def test_a_path_option_is_relative_to_the_recipe(
    with_shelf: dict[str, Any], write_recipe: Any, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    with_shelf["agent"]["tools"] = ["double", {"name": "shelf", "options": {"table": "words.txt", "limit": 7}}]
    loaded = load(with_shelf, write_recipe, plugins)
    assert [tool.name for tool in loaded.tools] == ["double", "shelf"]
    assert loaded.tools[1]("a") == f"{tmp_path / 'words.txt'} 7 a"
    again = load_recipe(yaml.safe_load(yaml.safe_dump(loaded.resolved())))
    assert again.tools[1]("a") == loaded.tools[1]("a")


def test_without_options_it_is_the_registered_tool(
    with_shelf: dict[str, Any], write_recipe: Any, plugins: Plugins
) -> None:
    with_shelf["agent"]["tools"] = [{"name": "double", "options": {}}]
    (tool,) = load(with_shelf, write_recipe, plugins).tools
    assert tool is plugins.registry("tools").get("double")
    assert plugins.registry("tools").get("shelf")("a") == "None 3 a"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"name": "double", "options": {"a": 1}}, "tool 'double' takes no options"),
        (
            {"name": "shelf", "options": {"table": "t", "limt": 1}},
            "unknown option of tool 'shelf' 'limt'; did you mean 'limit'",
        ),
        (
            {"name": "shelf", "options": {"table": "t", "limit": "x"}},
            "option 'limit' of tool 'shelf': must be a valid integer",
        ),
        (
            {"name": "shelf", "options": {"table": "t", "rules": {"strict": 3}}},
            "option 'rules.strict' of tool 'shelf': must be a valid boolean, got 3",
        ),
        (
            {"name": "shelf", "options": {"table": "t", "rules": {"strct": True}}},
            "option 'rules.strct' of tool 'shelf': unknown, got True",
        ),
        ("shelf", "tool 'shelf' needs the option 'table'"),
        ({"name": "shelf", "options": {"limit": 1}}, "tool 'shelf' needs the option 'table'"),
        ({"name": "shelf", "opt": {}}, "agent.tools.0.opt: unknown key"),
    ],
)
def test_wrong_options_are_refused(
    with_shelf: dict[str, Any], write_recipe: Any, plugins: Plugins, section: Any, says: str
) -> None:
    with_shelf["agent"]["tools"] = [section]
    with pytest.raises(UsageError, match=says):
        load(with_shelf, write_recipe, plugins)


def test_options_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shelves.py").write_text("from __future__ import annotations\n" + SHELF)
    options = ["--plugin", "shelves.py", "--option", "table=words.txt", "--option", "limit=7"]
    done = CliRunner().invoke(cli, ["tools", "call", "shelf", '{"word": "a"}', *options])
    assert done.output == f"{tmp_path / 'words.txt'} 7 a\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("table.read_text()", "[Errno 2] No such file or directory: '{table}'"),
        ("raise ValueError('no words\\nin it')", "no words in it"),
        ("None + 1", "unsupported operand type(s) for +: 'NoneType' and 'int'"),
        ("raise ValueError", "ValueError"),
    ],
)
def test_what_a_factory_finds_wrong_is_one_error(
    with_shelf: dict[str, Any],
    write_recipe: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    says: str,
) -> None:
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    monkeypatch.chdir(tmp_path)
    source = SHELF.replace("    @tool\n", f"    if table:\n        {body}\n\n    @tool\n")
    (tmp_path / "shelves.py").write_text(f"from __future__ import annotations\n{source}")
    error = f"tool 'shelf': {says.format(table=tmp_path / 'none.tsv')}\n"
    called = CliRunner().invoke(cli, ["tools", "call", "shelf", "--plugin", "shelves.py", "--option", "table=none.tsv"])
    assert (called.exit_code, called.stderr) == (2, f"error: {error}")
    with_shelf["agent"]["tools"] = [{"name": "shelf", "options": {"table": "none.tsv"}}]
    path = write_recipe(with_shelf)
    shown = CliRunner().invoke(cli, ["recipe", "show", str(path)])
    assert (shown.exit_code, shown.stderr) == (2, f"error: {path}: {error}")


def test_a_tool_is_built_by_name(plugins: Plugins, tmp_path: Path) -> None:
    (tmp_path / "shelves.py").write_text("from __future__ import annotations\n" + SHELF)
    plugins.load_path(tmp_path / "shelves.py")
    with pytest.raises(UsageError, match="tool 'shelf' needs the option 'table'"):
        build_tool("shelf", {}, plugins, tmp_path)
    assert build_tool("shelf", {"table": "t"}, plugins, tmp_path)("a") == f"{tmp_path / 't'} 3 a"  # type: ignore[operator]
