from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agentfly_core.cli import cli


class Site:
    """A folder on ``sys.path`` with distributions in it, as pip leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, distribution: str, entry_points: str, **modules: str) -> None:
        """A distribution with these modules, each name prefixed by ``af_cli_``."""
        for name, code in modules.items():
            (self.folder / f"af_cli_{name}.py").write_text(textwrap.dedent(code))
        info = self.folder / f"{distribution.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Only the distributions that a test adds, and the core's built-ins."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delenv("AGENTFLY_LOAD_PLUGINS", raising=False)
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "qwen,tiny")
    yield Site(folder)
    for name in [n for n in sys.modules if n.startswith("af_cli_")]:
        del sys.modules[name]


def agentfly(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli, list(arguments), prog_name="agentfly")


@pytest.fixture(name="agentfly")
def agentfly_fixture():
    return agentfly
