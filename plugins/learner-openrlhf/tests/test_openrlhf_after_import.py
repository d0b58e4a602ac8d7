"""Patching modules right after their import, and failing in one line."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from agentfly_learner_openrlhf.after_import import after_import
from agentfly_learner_openrlhf.failures import ClusterError, explain

from agentfly_core.types import UsageError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "af_patched").mkdir()
    (tmp_path / "af_patched" / "__init__.py").write_text("value = 1\n")
    (tmp_path / "af_patched" / "inner.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield "af_patched"
    for name in [n for n in sys.modules if n.startswith("af_patched")]:
        del sys.modules[name]


def test_modules_are_patched_once_when_they_come(package: str) -> None:
    seen: list[str] = []

    def then(module: ModuleType) -> None:
        seen.append(module.__name__)
        module.value += 10

    importlib.import_module(package)
    after_import({package: then, f"{package}.inner": then, f"{package}.absent": then})
    assert seen == [package]
    assert importlib.import_module(f"{package}.inner").value == 12
    importlib.reload(sys.modules[package])
    assert seen == [package, f"{package}.inner"]
    with pytest.raises(ModuleNotFoundError, match="absent"):
        importlib.import_module(f"{package}.absent")


def test_the_learner_is_light() -> None:
    script = (
        "import sys, agentfly_learner_openrlhf.learner, agentfly_learner_openrlhf.worker\n"
        "print(sorted({'ray', 'torch', 'openrlhf', 'vllm', 'numpy', 'deepspeed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


class RemoteError(Exception):
    """As Ray's: the cause is an attribute."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("Traceback (most recent call last):\n  ...\nRayTaskError: far away")
        self.cause = cause


def test_the_first_cause_is_told() -> None:
    error = explain(RemoteError(RemoteError(ValueError("\x1b[36mno \n luck\x1b[0m"))), logs="/logs")
    assert isinstance(error, ClusterError)
    assert error.exit_code == 3
    assert str(error) == "the run failed on the cluster: ValueError: no luck (logs: /logs)"


def test_wrong_input_found_on_a_worker_is_still_wrong_input() -> None:
    error = explain(RemoteError(UsageError("agent.tools: no such tool")), logs="/logs")
    assert type(error) is UsageError
    assert (error.exit_code, str(error)) == (2, "agent.tools: no such tool")


def test_of_a_traceback_the_end_is_told() -> None:
    text = 'Traceback (most recent call last):\n  File "x", line 1\nKeyError: 3'
    assert "RuntimeError: KeyError: 3 (logs" in str(explain(RuntimeError(text), logs="/logs"))
