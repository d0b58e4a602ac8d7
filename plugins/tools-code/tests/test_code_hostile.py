"""Code that tries to break its session: what it gets is told, what comes after works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from agentfly_tools_code.interpreter import CodeInterpreter
from agentfly_tools_code.shell import Shell

from agentfly_core.testing import call
from agentfly_core.types import ToolStatus, text_of

LOST = "The next call begins a new one: variables and imports are lost."

DEADLY = {
    "os._exit": ("import os\nprint('before')\nos._exit(4)", f"before\n[the Python process exited with code 4. {LOST}]"),
    "signal": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        f"[the Python process was killed by SIGSEGV. {LOST}]",
    ),
    "closing everything": ("import os\nos.closerange(3, 256)", f"[the Python process exited with code 70. {LOST}]"),
    "thread that exits": (
        "import os, threading, time\nthreading.Thread(target=lambda: os._exit(5)).start()\ntime.sleep(60)",
        f"[the Python process exited with code 5. {LOST}]",
    ),
}


@pytest.mark.parametrize("name", DEADLY)
def test_a_dead_interpreter_is_told_and_begun_anew(cells: Any, name: str) -> None:
    code, told = DEADLY[name]
    _, shown, after = cells("x = 1", code, "'x' in globals()", tool=CodeInterpreter(timeout=20.0))
    assert shown == told
    assert after == "False"


def test_dying_between_two_calls_is_told(chain: Any) -> None:
    code = (
        "import os, sys, threading, time\ndef leave():\n    while 'go' not in os.listdir('.'): time.sleep(0.01)\n"
        "    os._exit(6)\nthreading.Thread(target=leave).start()"
    )
    tools = [CodeInterpreter(), Shell()]
    calls = [("code_interpreter", {"code": code}), ("shell", {"command": "touch go; sleep 1"})]
    shown = chain(*(call(n, **a) for n, a in calls), call("code_interpreter", code="1 + 1"), tools=tools)[-1]
    assert text_of(shown.content) == "[the Python process ended since the last call: variables and imports are lost]\n2"


HARMLESS = {
    "closed streams": ("import sys\nsys.stdout.close()", "print('here')", "here"),
    "closed descriptors": ("import os\nos.close(1)\nos.close(2)", "print('here')", "here"),
    "broken builtins": (
        "import builtins\nkept = builtins.__import__\nbuiltins.len = builtins.isinstance = builtins.open = None\n"
        "del builtins.compile, builtins.exec, builtins.getattr",
        "x = 2\nx",
        "2",
    ),
    "broken modules": (
        "import os, struct, json, traceback, linecache, signal, io\n"
        "os.write = os.read = os.dup2 = os.getpid = None\nstruct.Struct = None\njson.dumps = None\n"
        "traceback.format_exception = None\nio.TextIOWrapper = None\nlinecache.cache = None",
        "3",
        "3",
    ),
    "no modules": ("import sys\nsys.modules.clear()", "4", "4"),
    "a stream of its own": (
        "import io, sys\nkept, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')",
        "sys.stdout, mine = kept, sys.stdout\nmine.getvalue()",
        "'hidden\\n'",
    ),
    "forks": (
        "import os\nfor _ in range(3):\n    if os.fork() == 0:\n        break\nelse:\n    while True:\n"
        "        try: os.wait()\n        except ChildProcessError: break",
        "5",
        "5",
    ),
    "deep code": ("(" * 30_000 + "-" * 30_000 + "1", "6", "6"),
    "deep data": ("x = []\nfor _ in range(100_000): x = [x]\nrepr(x)", "7", "7"),
    "endless recursion": ("def f(): f()\nf()", "8", "8"),
    "hostile exception": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(9)\nraise E",
        "9",
        "9",
    ),
    "hostile repr": ("class R:\n    def __repr__(self): raise KeyboardInterrupt\nR()", "10", "10"),
    "hook of its own": ("import sys\nsys.excepthook = lambda *a: 1 / 0\nraise ValueError", "11", "11"),
    "null character": ("x = '\0'", "12", "12"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_the_session_outlives(cells: Any, name: str) -> None:
    code, following, shown = HARMLESS[name]
    first, second = cells(code, following)
    assert second == shown, first
    assert "agentfly" not in first


def test_reports_cannot_be_forged_into_another_answer(cells: Any) -> None:
    """The code finds every object of its process; what it writes on the pipe of reports changes nothing."""
    forge = (
        "import os\n"
        "for fd in os.listdir('/proc/self/fd'):\n"
        "    for line in (b'\\n' + b'0' * 32 + b' ok\\n', b'x' * 100_000, b'\\n{\"status\": \"ok\"}\\n'):\n"
        "        try:\n"
        "            os.set_blocking(int(fd), False)\n"
        "            os.write(int(fd), line) if int(fd) > 2 else None\n"
        "        except OSError:\n"
        "            pass\n"
        "print('done')"
    )
    _, after = cells(forge, "1 + 1")
    assert after.removeprefix("[the Python process ended since the last call: variables and imports are lost]\n") == "2"


def test_the_supervisors_descriptors_and_memory_are_closed_to_it(cells: Any) -> None:
    code = (
        "import os\nfound = []\n"
        "for what in ('fd', 'mem', 'environ', 'fd/0', 'fd/3', 'fd/4', 'fd/5'):\n"
        "    try:\n"
        "        path = f'/proc/{os.getppid()}/{what}'\n"
        "        os.listdir(path) if what == 'fd' else open(path, 'rb').read(1)\n"
        "        found.append(what)\n"
        "    except OSError as error:\n"
        "        pass\n"
        "found"
    )
    assert cells(code) == ["[]"]


def test_killing_the_supervisor_costs_the_session_and_is_told(cells: Any) -> None:
    _, shown, after = cells("x = 1", "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(60)", "'x' in globals()")
    assert shown == f"[the session was lost: its processes were killed. {LOST}]"
    assert after == "False"


def test_stopping_the_supervisor_costs_the_session_and_is_told(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_tools_code.session.BACKSTOP_SECONDS", 1.0)
    monkeypatch.setattr("agentfly_tools_code.session.GRACE_SECONDS", 0.5)
    code = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nimport time; time.sleep(60)"
    _, shown, after = cells("x = 1", code, "2 + 2", tool=CodeInterpreter(timeout=6.0))
    assert shown == f"[the session was lost: it stopped answering. {LOST}]"
    assert after == "4"


def test_a_fork_bomb_is_bounded_and_ends_with_its_session(chain: Any) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    pids = {"sandbox": {"pids": 24}}
    tools = [CodeInterpreter(timeout=2.0, name="short", **pids), CodeInterpreter(timeout=60.0, **pids)]
    calls = [call("short", code=bomb), *[call("code_interpreter", code="3 * 3")] * 2]
    first, *_, last = (text_of(outcome.content) for outcome in chain(*calls, tools=tools))
    assert "[stopped after 2 s" in first or "session was lost" in first or "sandbox is gone" in first
    assert last == "9"


def test_a_disk_that_is_full_is_an_error_of_the_code(cells: Any) -> None:
    code = "with open('big', 'wb') as f:\n    for _ in range(100): f.write(b'x' * 1_000_000)"
    shown, after = cells(code, "1", tool=CodeInterpreter(sandbox={"disk": 16}))
    assert "OSError" in shown
    assert after == "1"


def test_output_of_background_threads_without_end_holds_nothing_up(cells: Any) -> None:
    flood = (
        "import threading\ndef flood():\n    while True: print('y' * 1000)\n"
        "threading.Thread(target=flood, daemon=True).start()"
    )
    _, after = cells(flood, "'mark' + 'ed'", tool=CodeInterpreter(timeout=20.0))
    assert len(after) < 8200


def test_the_hosts_files_variables_processes_and_network_are_not_there(
    cells: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("canary")
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    code = (
        "import os, socket\nfound = []\n"
        "def reach(what, how):\n    try: how(); found.append(what)\n    except OSError: pass\n"
        f"reach('file', lambda: open({str(tmp_path / 'secret')!r}))\n"
        f"reach('process', lambda: os.kill({os.getpid()}, 0)) if {os.getpid()} > 500 else None\n"
        "reach('network', lambda: socket.create_connection(('1.1.1.1', 53), 2))\n"
        "found, 'SECRET_TOKEN' in os.environ"
    )
    assert cells(code) == ["([], False)"]


def test_a_failed_call_is_marked(chain: Any) -> None:
    (outcome,) = chain(call("code_interpreter", code="import os; os._exit(1)"), tools=[CodeInterpreter()])
    assert outcome.status is ToolStatus.FAILED
