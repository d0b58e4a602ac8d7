"""What a model is told of code that did not simply end."""

from __future__ import annotations

import signal

from agentfly_tools_code.sandboxes import SandboxGone
from agentfly_tools_code.session import Answer


def describe_end(answer: Answer, seconds: float, *, what: str, lost: str, stateless: bool = False) -> str:
    """What the model is told of an end that is not an ordinary one; empty for that."""
    state = "" if stateless else " The session is kept." if answer.kept else f" {lost}"
    if answer.status == "timeout":
        return f"[stopped after {seconds:g} s, the time limit.{state}]"
    if answer.status == "exit":
        return f"[it ended with exit code {answer.detail.split()[0]}.{state}]"
    if answer.status == "died":
        return f"[the {what} {_death(answer.detail)}.{state}]"
    if answer.status == "lost":
        return f"[the session was lost: {answer.detail}.{state}]"
    return ""


def describe_loss(error: SandboxGone) -> str:
    """What the model is told where its sandbox has ended."""
    return f"[the sandbox is gone with all files that were in it: {error}. The next call begins in a new, empty one]"


def _death(code: str) -> str:
    """How a process ended, in words, from its exit code."""
    if not code:
        return "closed the pipe on which it reports"
    number = int(code)
    if number == -signal.SIGKILL:
        return "was killed, most likely for using too much memory"
    if number < 0:
        known = {int(one): one.name for one in signal.Signals}
        return f"was killed by {known.get(-number, f'signal {-number}')}"
    return f"exited with code {number}"
