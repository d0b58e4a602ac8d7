"""Packages of other authors, built to wheels and installed into a fresh environment beside the core's wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("build")

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "tests" / "packages"
BROKEN = ("broken_import", "junk", "clash", "future")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with wheels of the core, two plugins of ours and everything under tests/packages.

    Only what the wheels depend on (torch and so on) is shared with the environment of the tests.
    """
    folder = tmp_path_factory.mktemp("fresh")
    wheels = folder / "wheels"
    ours = (ROOT, ROOT / "plugins/templates-qwen", ROOT / "plugins/models-tiny")
    for source in (*ours, *sorted(p for p in PACKAGES.iterdir() if p.is_dir())):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, *map(str, sorted(wheels.glob("*.whl")))], check=True, capture_output=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = subprocess.run([str(python), "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    source = subprocess.run([sys.executable, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    (Path(target) / "shared.pth").write_text(source + "\n")
    return folder


@pytest.fixture
def agentfly(site: Path, tmp_path: Path):
    def run(*args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(site / "venv" / "bin" / "agentfly"), *args]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | env
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, f"{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def test_the_installed_core_is_the_wheel(site: Path) -> None:
    where = "import agentfly_core; print(agentfly_core.__file__)"
    found = subprocess.run([str(site / "venv/bin/python"), "-c", where], capture_output=True, text=True, cwd=site)
    assert found.stdout.startswith(str(site)), found


def test_each_broken_plugin_is_reported_and_none_harms_the_others(agentfly) -> None:
    rows = {r["name"]: r for r in json.loads(agentfly("plugins", "list", "--json").stdout)}
    states = {name: rows[name]["state"] for name in ("acme", *BROKEN)}
    assert states == {
        "acme": "loaded",
        "broken_import": "failed",
        "junk": "failed",
        "clash": "loaded",
        "future": "incompatible",
    }
    assert "a_package_that_nobody_has" in rows["broken_import"]["error"]
    assert "forty_two" in rows["junk"]["error"]
    assert "upgrade agentfly-core" in rows["future"]["error"]


def test_a_clashing_name_names_both_and_the_qualified_form_works(agentfly) -> None:
    clash = agentfly("tools", "call", "price", '{"item": "pen"}', code=2)
    assert "agentfly-plugin-acme" in clash.stderr
    assert "agentfly-plugin-clash" in clash.stderr
    assert agentfly("tools", "call", "acme:price", '{"item": "pen"}').stdout.strip() == "3"


def test_a_failed_plugin_is_named_where_its_tool_is_asked_for(agentfly) -> None:
    said = agentfly("tools", "call", "forty_two", "{}", code=2).stderr
    assert "agentfly-plugin-junk" in said


def test_training_uses_the_packages_tool_reward_agent_and_algorithm(agentfly, tmp_path: Path) -> None:
    env = {"AGENTFLY_DISABLE_PLUGINS": "clash,broken_import,junk,future"}
    recipe = str(PACKAGES / "acme" / "recipe.yaml")
    agentfly("sft", recipe, "--output", "warm", **env)
    agentfly("train", recipe, "model.path=warm", **env)
    (run,) = (tmp_path / "runs").glob("shop-2*")  # beside the folder of the supervised run
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in rows if r["step"] > 0]
    assert len(steps) == 2
    assert all(r["optim/steps"] + r["optim/idle"] == 1 for r in steps)
    # Twenty demonstrations of five questions: the tool is called and the answer read off, greedily, on all of them.
    assert rows[0]["eval/greedy/success"] == 1.0
    assert rows[0]["eval/greedy/tools_per_chain"] == 1.0
    assert (run / "model" / "model.safetensors").is_file()
