"""``shell`` as a model sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agentfly_tools_code.interpreter import code_interpreter
from agentfly_tools_code.shell import Shell, shell

from agentfly_core.testing import call
from agentfly_core.types import ToolStatus, text_of

Commands = Callable[..., list[str]]
LOST = "The next call begins a new one in the workspace: working directory and variables are lost.]"


@pytest.fixture
def commands(chain: Any) -> Commands:
    """What the model is shown after each command."""

    def run(*commands: str, tool: Shell = shell) -> list[str]:  # type: ignore[assignment]
        outcomes = chain(*(call("shell", command=command) for command in commands), tools=[tool])
        return [text_of(outcome.content) for outcome in outcomes]

    return run


def test_directory_variables_and_functions_last(commands: Commands) -> None:
    assert commands(
        "mkdir -p sub && cd sub && export A=3 && B=4", "basename $PWD; echo $A $B", "f() { echo in $1; }", "f x"
    ) == ["[no output]", "sub\n3 4", "[no output]", "in x"]


def test_exit_codes_and_both_streams_are_shown_in_order(commands: Commands) -> None:
    assert commands("echo a; echo b >&2; echo c; false", "echo \"it's $((6*7))\" '!'; true", "nonsense 2>&1 | cat") == [
        "a\nb\nc\n[exit code 1]",
        "it's 42 !",
        "bash: nonsense: command not found",
    ]


def test_several_lines_and_here_documents(commands: Commands) -> None:
    assert commands("for i in 1 2; do\n  echo $i\ndone\ncat <<'END'\n$x\nEND") == ["1\n2\n$x"]


def test_there_is_no_standard_input(commands: Commands) -> None:
    assert commands('cat; read x; echo "<$x>"') == ["<>"]


def test_a_syntax_error_is_an_error_and_no_more(commands: Commands) -> None:
    shown, after = commands("if true; then", "echo on")
    assert "syntax error" in shown
    assert after == "on"


def test_a_command_that_runs_too_long_is_stopped_and_the_session_stays(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 30.0)
    _, shown, after = commands("X=1", "echo begun; sleep 600; echo never", "echo $X", tool=Shell(timeout=3.0))
    assert shown == "begun\n[stopped after 3 s, the time limit. The session is kept.]"
    assert after == "1"


def test_a_command_that_ignores_interrupts_costs_the_session(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 0.3)
    _, shown, after = commands("X=1", "trap '' INT; while :; do :; done", "echo <$X>", tool=Shell(timeout=3.0))
    assert shown == f"[stopped after 3 s, the time limit. {LOST}"
    assert after == "bash: syntax error near unexpected token `newline'" or "exit code" in after


def test_exit_ends_the_session_and_says_so(commands: Commands) -> None:
    _, shown, after = commands("X=1", "exit 3", 'echo "<$X>"')
    assert shown.endswith(f"[the shell exited with code 3. {LOST}")
    assert after == "<>"


def test_background_jobs_run_on_and_end_with_the_chain(chain: Any, resources: Any) -> None:
    started, waited = chain(
        call("shell", command="(while :; do echo tick >> log; sleep 0.02; done) & echo started"),
        call(
            "shell",
            command="until [ $(cat log 2>&1 | wc -l) -ge 3 ]; do sleep 0.02; done; echo running; jobs -p | wc -l",
        ),
        tools=[shell],
    )
    assert text_of(started.content).endswith("started")
    assert text_of(waited.content) == "running\n1"
    (after,) = chain(call("shell", command="sleep 0.3; ls"), tools=[shell])
    assert text_of(after.content) == "[no output]"  # it would have gone on to write its log


def test_long_output_loses_its_middle(commands: Commands) -> None:
    (shown,) = commands("printf 'y%.0s' {1..9000}", tool=Shell(max_output=1000))
    assert shown == "y" * 500 + "\n[... 8000 bytes left out ...]\n" + "y" * 500


def test_a_job_that_a_signal_ends_leaves_no_noise(commands: Commands) -> None:
    assert commands("yes | head -n 2", "sh -c 'kill -9 $$'; echo $?") == ["y\ny", "137"]


def test_it_shares_the_workspace_with_the_other_tools(chain: Any) -> None:
    outcomes = chain(
        call("code_interpreter", code="open('note.txt', 'w').write('from python')"),
        call("shell", command="cat note.txt; echo; echo 'from bash' > note.txt"),
        call("code_interpreter", code="open('note.txt').read()"),
        tools=[shell, code_interpreter],
    )
    assert [text_of(o.content) for o in outcomes] == ["11", "from python", "'from bash\\n'"]


def test_a_failed_command_is_marked(chain: Any) -> None:
    good, bad = chain(call("shell", command="true"), call("shell", command="false"), tools=[shell])
    assert (good.status, bad.status) == (ToolStatus.OK, ToolStatus.FAILED)


BREAKING = ["exec 1>&-", "exec 1>&- 2>&-", "set -e; false", "kill -9 $$", "ulimit -n 3", "unset PATH", "set -u; $zz"]


@pytest.mark.parametrize("command", BREAKING)
def test_the_session_outlives_or_is_begun_anew(chain: Any, command: str) -> None:
    calls = (call("shell", command=command), call("shell", command="exit 0"), call("shell", command="echo next"))
    assert text_of(chain(*calls, tools=[shell])[-1].content) == "next"
