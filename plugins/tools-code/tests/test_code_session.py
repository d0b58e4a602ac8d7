"""``code_interpreter`` as a model sees it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from agentfly_tools_code.frames import BadReply
from agentfly_tools_code.interpreter import CodeInterpreter, code_interpreter
from agentfly_tools_code.notes import describe_end
from agentfly_tools_code.sandboxes import sandbox_spec
from agentfly_tools_code.session import Answer, read_reply

from agentfly_core.resources import ResourceManager
from agentfly_core.testing import call, check_tool, play
from agentfly_core.types import ChainStatus, ToolContext, ToolStatus, UsageError


def test_names_functions_classes_and_imports_last(cells: Any) -> None:
    assert cells(
        "x = 20\ndef fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nimport math",
        "class Point:\n    def __init__(self, a): self.a = a\n    def __repr__(self): return f'Point({self.a})'",
        "[fact(i) for i in range(5)], math.gcd(x, 8)",
        "Point(x)",
        "import pickle\npickle.loads(pickle.dumps(Point(3)))",
        "x += 1; x",
        "y = x",
        "None",
    ) == [
        "[no output]",
        "[no output]",
        "([1, 1, 2, 6, 24], 4)",
        "Point(20)",
        "Point(3)",
        "21",
        "[no output]",
        "[no output]",
    ]


def test_only_the_last_expression_is_echoed_and_underscore_holds_it(cells: Any) -> None:
    assert cells("1\n2", "_ + 1", "for i in range(2):\n    i") == ["2", "3", "[no output]"]


def test_stdout_stderr_and_subprocesses_keep_their_order(cells: Any) -> None:
    code = (
        "import sys, subprocess\nprint('a')\nprint('b', end='')\nsys.stderr.write('c\\n')\nprint('d')\n"
        "subprocess.run(['echo', 'e'])\nprint('f')"
    )
    assert cells(code) == ["a\nbc\nd\ne\nf"]


def test_a_traceback_shows_the_models_lines_and_none_of_ours(cells: Any) -> None:
    _, shown, chained = cells(
        "def inverse(n):\n    return 1 / n",
        "inverse(0)",
        "try:\n    inverse(0)\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error",
    )
    lines = [line for line in shown.splitlines() if not set(line) <= {" ", "~", "^"}]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 1, in <module>',
        "    inverse(0)",
        '  File "<cell 1>", line 2, in inverse',
        "    return 1 / n",
        "ZeroDivisionError: division by zero",
    ]
    assert re.findall(r'File "([^"]*)"', chained) == ["<cell 3>", "<cell 1>", "<cell 3>"]
    assert "direct cause" in chained


def test_a_syntax_error_runs_nothing_and_shows_the_place(cells: Any) -> None:
    shown, x = cells("x = 1\nif x print(x)", "'x' in globals()")
    assert '  File "<cell 1>", line 2' in shown
    assert shown.endswith("SyntaxError: invalid syntax")
    assert x == "False"


def test_future_imports_hold_for_later_cells(cells: Any) -> None:
    assert (
        cells("from __future__ import annotations", "def f(x: missing): ...\nf.__annotations__")[1]
        == "{'x': 'missing'}"
    )


def test_long_output_loses_its_middle_with_a_note(cells: Any) -> None:
    (shown,) = cells("print('a' * 5000 + 'b' * 5000)", tool=CodeInterpreter(max_output=1000))
    assert shown == "a" * 500 + "\n[... 9001 bytes left out ...]\n" + "b" * 499


def test_a_hundred_megabytes_are_bounded(cells: Any) -> None:
    shown, after = cells("import sys\nfor _ in range(100):\n    sys.stdout.write('x' * 1_000_000)", "1 + 1")
    assert "[... 99992000 bytes left out ...]" in shown
    assert len(shown) < 8100
    assert after == "2"


def test_the_status_tells_whether_the_code_ran(chain: Any) -> None:
    good, bad = chain(
        call("code_interpreter", code="1"), call("code_interpreter", code="1/0"), tools=[code_interpreter]
    )
    assert (good.status, bad.status) == (ToolStatus.OK, ToolStatus.FAILED)


def test_a_fence_around_the_whole_code_is_taken_off(cells: Any) -> None:
    assert cells("```python\nz = 4\nz\n```", "z") == ["4", "4"]


def test_an_interrupt_keeps_the_session(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 30.0)
    _, shown, x = cells("x = 5", "print('begun')\nwhile True:\n    pass", "x", tool=CodeInterpreter(timeout=3.0))
    assert shown.startswith("begun\nTraceback")
    assert "KeyboardInterrupt" in shown
    assert shown.endswith("[stopped after 3 s, the time limit. The session is kept.]")
    assert x == "5"


def test_code_that_cannot_be_interrupted_costs_the_session(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 0.3)
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun')\nwhile True:\n    pass"
    _, shown, x = cells("x = 5", stubborn, "'x' in globals()", tool=CodeInterpreter(timeout=3.0))
    assert shown == (
        "begun\n[stopped after 3 s, the time limit. The next call begins a new one: variables and imports are lost.]"
    )
    assert x == "False"


def test_too_much_memory_costs_the_cell_or_the_session_and_the_model_is_told_which(cells: Any) -> None:
    tool = CodeInterpreter(sandbox={"memory": 256})
    _, shown, x = cells("x = 5", "data = b'x' * 1_000_000_000", "globals().get('x')", tool=tool)
    if "MemoryError" in shown:
        assert x == "5"
    else:
        assert shown == (
            "[the Python process was killed, most likely for using too much memory. "
            "The next call begins a new one: variables and imports are lost.]"
        )
        assert x == "[no output]"


def test_exit_ends_the_cell_and_keeps_the_session(cells: Any) -> None:
    assert cells("x = 1\nimport sys\nsys.exit(3)", "x", "exit('bye')") == [
        "[it ended with exit code 3. The session is kept.]",
        "1",
        "bye\n[it ended with exit code 1. The session is kept.]",
    ]


def test_stateless_calls_share_files_and_nothing_else(cells: Any) -> None:
    tool = CodeInterpreter(stateless=True)
    assert cells("x = 1\nopen('f', 'w').write('kept')", "'x' in globals()", "open('f').read()", tool=tool) == [
        "4",
        "False",
        "'kept'",
    ]


def test_threads_print_into_the_cell_that_runs(cells: Any) -> None:
    code = (
        "import threading\ngate = threading.Event()\n"
        "worker = threading.Thread(target=lambda: (gate.wait(), print('late')))"
    )
    _, _, shown = cells(code, "worker.start()", "gate.set(); worker.join(); print('now')")
    assert shown == "late\nnow"


def test_each_chain_has_a_session_of_its_own(cells: Any) -> None:
    cells("secret = 'mine'\nopen('secret.txt', 'w').write('mine')")
    assert cells("import os\n'secret' in globals(), os.listdir('.')") == ["(False, [])"]


def test_a_module_in_the_workspace_can_be_imported(cells: Any) -> None:
    assert cells(
        "open('helper.py', 'w').write('VALUE = 7')", "import helper\nhelper.VALUE", "import os; os.listdir('.')"
    ) == [
        "9",
        "7",
        "['helper.py']",
    ]


def test_text_that_is_no_utf8_is_shown_somehow(cells: Any) -> None:
    bytes_shown, surrogate = cells("import os\nos.write(1, b'\\xff\\xfe\\n');", "print('\\udcff')")
    assert bytes_shown.startswith("\ufffd\ufffd")
    assert surrogate == "\ufffd"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": 0.0}, "timeout must be greater than 0"),
        ({"max_output": 10}, "max_output must be at least 200"),
        ({"sandbox": {"memry": 1}}, "did you mean 'memory'"),
        ({"sandbox": {"pids": -3}}, "pids must be a whole number greater than 0"),
        ({"sandbox": {"kind": "docker", "cpu": 0}}, "cpu must be a number of cores"),
        ({"sandbox": {"min_isolation": "none"}}, "must be one of process, sandbox, container"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        CodeInterpreter(**options)


def test_the_spec_demands_a_sandbox_by_default() -> None:
    spec = sandbox_spec()
    assert spec.min_isolation.name == "SANDBOX"
    assert not spec.network


def test_it_passes_the_conformance_check(resources: ResourceManager) -> None:
    check_tool(code_interpreter, calls=[{"code": "1 + 1"}], context=ToolContext(resources=resources))


def test_a_chain_that_runs_out_of_time_gives_its_sandbox_back(resources: ResourceManager) -> None:
    endless = [call("code_interpreter", code="while True: pass")]
    tool = CodeInterpreter(timeout=600.0)
    assert play(endless, tools=[tool], resources=resources, timeout=3.0).status is ChainStatus.TIMEOUT
    (row,) = (row for row in asyncio.run(resources.coordinator.status()) if row.kind == "process")
    assert row.granted == 0


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"status": "well"},
        {"status": "exit", "detail": ""},
        {"status": "exit", "detail": "x" * 9},
        {"status": "died", "detail": "-99999"},
        {"id": 2},
        {"text": 5},
        {"kept": "yes"},
        {"text": ["x"]},
    ],
)
def test_an_answer_of_the_wrong_form_is_refused(reply: dict[str, Any]) -> None:
    good = {"id": 1, "status": "ok", "detail": "", "text": "x", "kept": True, "lost": False}
    assert read_reply(good, 1).text == "x"
    with pytest.raises(BadReply):
        read_reply({**good, **reply} if reply else {}, 1)


@pytest.mark.parametrize(
    ("code", "says"),
    [("-9", "using too much memory"), ("-35", "signal 35"), ("-11", "SIGSEGV"), ("", "closed the pipe")],
)
def test_every_death_has_words(code: str, says: str) -> None:
    answer = Answer("died", code, kept=False)
    assert says in describe_end(answer, 1.0, what="Python process", lost="Lost.")
