"""Comparing answers with the package math-verify, in a process that can be killed.

It hands what a model wrote to a computer algebra system, which a short text can keep busy for ever; a limit in this
process would not help, because the work holds the interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading

from agentfly_core.types.errors import AgentFlyError, MissingDependency

SECONDS = 10.0
"""For one comparison."""

START_SECONDS = 60.0
"""For starting the process, which imports a computer algebra system."""


class Verifier:
    """Says whether two LaTeX texts mean the same; one comparison at a time, callable from any thread.

    Raises:
        MissingDependency: math-verify is not installed.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise MissingDependency("math-verify", "numeric_match with math_verify: true", "agentfly-core[math]")
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, answer: str, response: str) -> bool:
        """Whether ``response`` ends with ``answer``; what cannot be read, or not in time, is no match.

        Raises:
            AgentFlyError: the process does not start.
        """
        with self._lock:
            process = self._process or self._start()
            line = _exchange(process, json.dumps([answer, response]), self._seconds)
            if not line:  # it was killed, or the text crashed it: the next comparison gets a new process
                self._end()
            return line == "true"

    def close(self) -> None:
        """End the process. It also ends by itself when this one does."""
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[str]:
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "agentfly_core.rewards.verifier_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        line = _exchange(process, None, START_SECONDS)
        if line != "ready":
            self._end()
            raise AgentFlyError(f"math-verify does not start: {line or f'exit code {process.returncode}'}")
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _exchange(process: subprocess.Popen[str], question: str | None, seconds: float) -> str:
    """Write a line and read one; empty if the process ended, or had to be killed because time was up."""
    assert process.stdin is not None
    assert process.stdout is not None
    alarm = threading.Timer(seconds, process.kill)
    alarm.daemon = True
    alarm.start()
    try:
        if question is not None:
            process.stdin.write(f"{question}\n")
            process.stdin.flush()
        return process.stdout.readline().rstrip("\n")
    except BrokenPipeError:
        return ""
    finally:
        alarm.cancel()
