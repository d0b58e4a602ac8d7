"""The commands and snippets of the README and the docs do what they say.

In a page, a block ``bash run`` is run line by line, a block ``python run`` as a script, and a block with ``file=NAME``
is written to that file first; all blocks of a page share one folder, in order. Other Python blocks must compile.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
OFFLINE = "--no-deps --no-build-isolation"
"""Added to what pages install: all that it needs is installed already."""
RUNNABLE = [p for p in PAGES if re.search(r"^```\w+ run$", p.read_text(), re.MULTILINE)]


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, what follows it, text) of each fenced block."""
    return [(m[1], m[2].strip(), m[3]) for m in BLOCK.finditer(page.read_text())]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.e2e
@pytest.mark.torch
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_what_a_page_runs_works(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "AGENTFLY_TEST_DOCS": "1"}
    installed: list[str] = []
    try:
        for language, info, text in blocks(page):
            if found := re.search(r"file=(\S+)", info):
                (tmp_path / found[1]).write_text(text)
            elif info == "run" and language == "python":
                run([sys.executable, "-c", text], tmp_path, env, text)
            elif info == "run":
                for line in text.splitlines():
                    if line.startswith("pip install"):
                        installed += [word for word in shlex.split(line) if word.startswith("agentfly-plugin-")]
                        line = f"{sys.executable} -m {line} {OFFLINE}"
                    run(["bash", "-euc", line], tmp_path, env, line)
    finally:
        for package in installed:
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "-y", package], check=True, capture_output=True)


def run(command: list[str], folder: Path, env: dict[str, str], shown: str) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{shown}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_compile(page: Path) -> None:
    for language, info, text in blocks(page):
        if language == "python":
            compile(text, f"{name(page)} {info}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)}: {target}"


def test_ci_calls_the_readmes_commands_as_written() -> None:
    commands = [c for _, _, text in blocks(ROOT / "README.md") for c in text.splitlines() if "pip install nox" in c]
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [c for c in commands if not any(line.split(" -- ")[0] == c for line in script)] == []
