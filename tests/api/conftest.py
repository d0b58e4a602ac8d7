from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.plugins import Plugins

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The built-ins and the demonstration parts, whatever is installed."""
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    plugins = Plugins.load()
    plugins.load_path(RECIPES / "demo_parts.py")
    return plugins


@pytest.fixture
def parts(plugins: Plugins) -> dict[str, Any]:
    """The demonstration parts' own tools and rewards."""
    return {"double": plugins.registry("tools").get("double"), "is_right": plugins.registry("rewards").get("is_right")}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    folder: Path = runpy.run_path(str(RECIPES / "demo_model.py"))["write_tokenizer"](tmp_path / "model")
    return folder
