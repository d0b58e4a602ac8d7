"""Sessions in every kind of sandbox that this machine can run: what ends them, and that nothing outlives them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agentfly_tools_code.interpreter import CodeInterpreter
from agentfly_tools_code.shell import Shell

from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.testing import call, play
from agentfly_core.types import ChainStatus, ResourceError, SamplingParams, Trajectory, text_of

IMAGE = "agentfly-sandbox-test:local"
TIERS = ("bubblewrap", "landlock+seccomp", "rlimits", "docker")
SESSION_LOST = "The next call begins a new one: variables and imports are lost.]"
SHELL_LOST = "The next call begins a new one in the workspace: working directory and variables are lost.]"
STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        with open('beats', 'a') as file:
            file.write('.')
        time.sleep(0.01)
while not os.path.exists('beats'):
    time.sleep(0.01)
"""
"""It leaves its group, its session and its parents, and writes on and on."""
BEATS = "import os, time\nbefore = os.path.getsize('beats')\ntime.sleep(0.3)\nos.path.getsize('beats') - before"

Play = Callable[..., list[str]]


class Tier:
    """The resources of one kind of sandbox."""

    def __init__(self, name: str) -> None:
        self.kind = "docker" if name == "docker" else "process"
        options = {"kind": self.kind, "image": IMAGE} if name == "docker" else {"kind": self.kind}
        if name == "rlimits":
            options["min_isolation"] = "process"
        self.options = options
        provider: Any = DockerProvider() if name == "docker" else ProcessProvider(tier=name)  # type: ignore[arg-type]
        try:
            provider.report()
        except ResourceError as error:
            required = os.environ.get("REQUIRE_DOCKER" if name == "docker" else "REQUIRE_SANDBOXES") == "1"
            (pytest.fail if required else pytest.skip)(f"no {name} sandbox here: {error}")
        self.resources = ResourceManager(InProcessCoordinator({self.kind: 2}), {self.kind: provider})

    def play(self, *calls: str, tools: list[Any]) -> Trajectory:
        """A chain of calls, one a turn."""
        sampling = SamplingParams(max_tokens=200_000)
        return play(
            [*calls, "done"], tools=tools, resources=self.resources, max_turns=len(calls) + 1, timeout=240.0,
            sampling=sampling,
        )  # fmt: skip

    def shown(self, *calls: str, tools: list[Any]) -> list[str]:
        """What the model is shown after each."""
        trajectory = self.play(*calls, tools=tools)
        assert trajectory.error is None, trajectory.error
        return [text_of(outcome.content) for turn in trajectory.turns for outcome in turn.outcomes]


@pytest.fixture(scope="module", params=TIERS)
def tier(request: pytest.FixtureRequest) -> Iterator[Tier]:
    made = Tier(request.param)
    yield made
    asyncio.run(made.resources.close())


@pytest.fixture(autouse=True)
def _grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 0.3)


@pytest.fixture
def python(tier: Tier) -> Play:
    """What the model is shown after each cell."""

    def run(*cells: str, timeout: float = 30.0, **options: Any) -> list[str]:
        tool = CodeInterpreter(timeout=timeout, sandbox=tier.options, **options)
        return tier.shown(*(call(tool.name, code=cell) for cell in cells), tools=[tool])

    return run


def test_stateless_calls_begin_anew_and_keep_files(python: Play) -> None:
    assert python("x = 1; open('f', 'w').write('kept')", "'x' in globals()", "open('f').read()", stateless=True) == [
        "4",
        "False",
        "'kept'",
    ]


def test_a_timeout_that_costs_the_session_is_told_as_one(python: Play) -> None:
    assert python("x = 1", STUBBORN, "'x' in globals()", timeout=3.0) == [
        "[no output]",
        f"[stopped after 3 s, the time limit. {SESSION_LOST}",
        "False",
    ]


@pytest.mark.parametrize(
    ("code", "how"), [("os._exit(3)", "exited with code 3"), ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV")]
)
def test_an_end_is_told_with_its_code(python: Play, code: str, how: str) -> None:
    assert python(f"x = 1\nimport os\n{code}", "'x' in globals()") == [
        f"[the Python process {how}. {SESSION_LOST}",
        "False",
    ]


@pytest.mark.parametrize("end", [STUBBORN, "os._exit(3)"])
def test_no_process_outlives_its_session(python: Play, end: str) -> None:
    *_, beats = python(ORPHAN, BEATS, end, BEATS, timeout=5.0)
    assert beats == "0"


def test_no_process_outlives_a_stateless_call(python: Play) -> None:
    assert python(ORPHAN, BEATS, stateless=True)[1] == "0"


def test_a_shell_is_begun_anew(tier: Tier) -> None:
    if tier.kind == "docker":
        pytest.skip("the test's image has no bash")
    tool = Shell(timeout=3.0, sandbox=tier.options)
    commands = ["X=1", "trap '' INT; while :; do :; done", 'echo "<$X>"', "exit 3", "echo on"]
    assert tier.shown(*(call("shell", command=command) for command in commands), tools=[tool]) == [
        "[no output]",
        f"[stopped after 3 s, the time limit. {SHELL_LOST}",
        "<>",
        f"exit\n[the shell exited with code 3. {SHELL_LOST}",
        "on",
    ]


def test_an_image_without_bash_is_named_and_is_no_fault_of_the_model(tier: Tier) -> None:
    if tier.kind != "docker":
        pytest.skip("it has bash")
    trajectory = tier.play(call("shell", command="echo 1"), tools=[Shell(sandbox=tier.options)])
    assert trajectory.status is ChainStatus.ENVIRONMENT_ERROR
    assert trajectory.error == f"tool 'shell': the image '{IMAGE}' has no bash; take an image that has it"
    assert not trajectory.scored
