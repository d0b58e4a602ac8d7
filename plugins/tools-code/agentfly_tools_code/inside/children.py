"""The processes a supervisor runs code in: forked Python, or bash.

Both write everything they print into one pipe, and report the end of each piece of code as a line on another:
``NONCE status detail``.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod

from agentfly_tools_code.inside.cells import main as serve_cells
from agentfly_tools_code.inside.wire import send

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def _adopt() -> None:
    """In the new process: it dies with its supervisor, and what it holds under /proc is its own again."""
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):  # not Linux
        return


class Child(ABC):
    """A process with its pipes.

    Attributes:
        pid: of the process, which leads a session and process group of its own.
        output: where what it prints comes out.
        control: where it reports the end of each piece of code.
    """

    def __init__(self, pid: int, requests: int, output: int, control: int) -> None:
        self.pid = pid
        self.output = output
        self.control = control
        self._requests = requests
        os.set_blocking(output, False)
        os.set_blocking(control, False)

    @classmethod
    def missing(cls) -> str:
        """The name of a program that it needs and that is not there; empty if there is none."""
        return ""

    @abstractmethod
    def submit(self, nonce: str, text: str) -> None:
        """Run a piece of code; the line that reports its end begins with ``nonce``."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ask it to stop what it is doing and to keep its state."""

    def close(self) -> None:
        """Close our ends of its pipes."""
        for fd in (self._requests, self.output, self.control):
            os.close(fd)


class PythonChild(Child):
    """A forked interpreter: it starts in a millisecond or two, with nothing to import."""

    @classmethod
    def start(cls, secret: list[int]) -> PythonChild:
        """A new one, without the descriptors in ``secret``."""
        requests, give = os.pipe()
        take, output = os.pipe()
        listen, control = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _adopt()
                for fd in (*secret, give, take, listen):
                    os.close(fd)
                serve_cells(requests, output, control)
            finally:
                os._exit(70)
        for fd in (requests, output, control):
            os.close(fd)
        return cls(pid, give, take, listen)

    def submit(self, nonce: str, text: str) -> None:
        send(self._requests, nonce.encode() + text.encode("utf-8", "surrogatepass"))

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)


class BashChild(Child):
    """An interactive bash without a terminal: an interrupt brings it back to where it reads its next command.

    The command itself runs without the pipe on which its end is reported, and without standard input.
    """

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("bash") else "bash"

    @classmethod
    def start(cls, secret: list[int]) -> BashChild:
        """A new one. ``secret`` descriptors are closed by exec."""
        requests, give = os.pipe()
        take, output = os.pipe()
        listen, control = os.pipe()
        environment = {**os.environ, "PS1": "", "PS2": "", "HISTFILE": "", "TERM": "dumb"}
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i"],
            stdin=requests,
            stdout=output,
            stderr=subprocess.DEVNULL,
            pass_fds=(control,),
            env=environment,
            start_new_session=True,
            preexec_fn=_adopt,
        )
        process.returncode = 0  # the supervisor waits for it
        for fd in (requests, output, control):
            os.close(fd)
        child = cls(process.pid, give, take, listen)
        child._fd = control
        child._write("exec 2>&1; set +o histexpand +o history\n")  # until here it complained about the terminal
        return child

    _fd: int
    """On which bash reports, in bash."""

    def submit(self, nonce: str, text: str) -> None:
        text = text.replace("\0", "")
        run = f"eval {shlex.quote(text)} </dev/null {self._fd}>&-"
        self._write(f"{run}\nprintf '{nonce} exit %d\\n' $? >&{self._fd}\n")

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def _write(self, text: str) -> None:
        left = text.encode("utf-8", "replace")
        while left:
            left = left[os.write(self._requests, left) :]
