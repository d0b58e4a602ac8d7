from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest


class Site:
    """A folder on sys.path into which distributions are put as pip would leave them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def add(self, distribution: str, code: str, *, entry: str | None = None, value: str | None = None) -> str:
        """One distribution with one module of a fresh name and one entry point; returns the module's name."""
        self.count += 1
        module = f"af_fake_{abs(hash(str(self.folder))):x}_{self.count}"
        (self.folder / f"{module}.py").write_text(textwrap.dedent(code))
        self.metadata(distribution, f"[agentfly]\n{entry or distribution} = {(value or '{m}').format(m=module)}\n")
        return module

    def metadata(self, distribution: str, entry_points: str) -> None:
        info = self.folder / f"{distribution.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("AGENTFLY_DISABLE_PLUGINS", raising=False)
    monkeypatch.delenv("AGENTFLY_LOAD_PLUGINS", raising=False)
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        if name.startswith(("af_fake_", "agentfly_user_")):
            del sys.modules[name]
