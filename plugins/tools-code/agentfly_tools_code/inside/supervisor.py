"""Keeps a session in a process of its own: feeds it code, collects what it prints, enforces its time limit.

The code under it never holds the descriptors on which the supervisor talks to the outside. It may be able to kill the
supervisor; the outside sees that as the end of the stream.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import select
import signal
import struct
import sys
import termios
import time
from typing import Any

from agentfly_tools_code.inside.children import BashChild, Child, PythonChild
from agentfly_tools_code.inside.family import become_keeper, descendants
from agentfly_tools_code.inside.output import Output
from agentfly_tools_code.inside.wire import receive, send

KINDS: dict[str, type[PythonChild] | type[BashChild]] = {"python": PythonChild, "bash": BashChild}
MAX_LINE = 4096
"""Of a report; whatever is longer is no report."""
DEATH_SECONDS = 0.5
KILL_SECONDS = 3.0
"""How long all descendants may take to die."""


def main() -> None:
    """Serve requests from standard input until it ends. The command line names the kind of session."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    become_keeper()
    os.environ.setdefault("MPLBACKEND", "Agg")
    if missing := KINDS[sys.argv[1]].missing():
        _refuse(missing, requests, replies)
    else:
        Supervisor(sys.argv[1], requests, replies).serve()


def _refuse(missing: str, requests: int, replies: int) -> None:
    """Answer every request with the name of the program that is not there."""
    answer = {"status": "missing", "detail": missing, "text": "", "kept": False, "lost": False}
    while True:
        try:
            request = json.loads(receive(requests))
        except EOFError:
            return
        send(replies, json.dumps({**answer, "id": request["id"]}).encode())


class Supervisor:
    """One session at a time, replaced when it dies or cannot be interrupted."""

    def __init__(self, kind: str, requests: int, replies: int) -> None:
        self._kind = KINDS[kind]
        self._requests = requests
        self._replies = replies
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        self._secret = [requests, replies, self._wake, wake]
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._output = Output(MAX_LINE)
        self._lines = b""
        self._ended: int | None = None
        self._deaf = False
        self._poll = select.poll()
        self._child = self._start()

    def serve(self) -> None:
        """Answer one request after another: a JSON object for a JSON object."""
        while True:
            self._wait_for_request()
            try:
                request = json.loads(receive(self._requests))
            except EOFError:
                self._kill()
                return
            send(self._replies, json.dumps(self._answer(request)).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        lost = self._lost_meanwhile()
        if request["fresh"] or lost:
            self._restart()
        self._limit(request["limit"])
        status, detail, kept = self._run(request["text"], request["timeout"], request["grace"])
        reply = {"status": status, "detail": detail, "kept": kept, "lost": lost, "text": self._output.text()}
        self._output = Output(request["limit"])
        return {**reply, "id": request["id"], "seconds": time.monotonic() - began}

    def _run(self, text: str, timeout: float, grace: float) -> tuple[str, str, bool]:
        """How the code ended, what more there is to say, and whether the session is still the same."""
        nonce = secrets.token_hex(16)
        deadline = time.monotonic() + timeout
        interrupted = False
        try:
            self._child.submit(nonce, text)
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
        while True:
            found = self._report(nonce)
            if found is not None:
                self._drain()
                status, _, detail = found.partition(" ")
                return ("timeout" if interrupted else status), detail, True
            if self._ended is not None or self._deaf:
                detail = self._obituary()
                self._restart()
                return ("timeout" if interrupted else "died"), detail, False
            left = deadline - time.monotonic()
            if left > 0:
                self._listen(left)
            elif not interrupted:
                interrupted = True
                deadline = time.monotonic() + grace
                self._child.interrupt()
            else:
                self._drain()
                self._restart()
                return "timeout", "", False

    def _obituary(self) -> str:
        """How the session ended: its exit code, or empty if it lives and merely cannot report any more."""
        end = time.monotonic() + DEATH_SECONDS  # its pipes close a moment before it can be waited for
        while self._ended is None and time.monotonic() < end:
            self._listen(DEATH_SECONDS / 10)
        self._drain()
        return "" if self._ended is None else str(os.waitstatus_to_exitcode(self._ended))

    def _wait_for_request(self) -> None:
        """Until the outside says something; what a session prints in the background is kept meanwhile."""
        self._poll.register(self._requests, select.POLLIN)
        while not self._listen(None):
            self._report("")  # a report that nobody waits for
        self._poll.register(self._requests, 0)

    def _listen(self, seconds: float | None) -> bool:
        """Take in what there is, waiting for it; whether the outside said something or is gone."""
        heard = False
        for fd, event in self._poll.poll(None if seconds is None else seconds * 1000 + 1):
            if fd == self._requests:
                heard = True
                if event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN:
                    self._kill()
                    os._exit(0)
            elif fd == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            elif fd == self._child.output:
                self._take(fd, self._output.add)
            else:
                self._take(fd, self._hear)
        return heard

    def _take(self, fd: int, use: Any) -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if data:
            use(data)
        else:  # closed by everybody who could write to it
            self._poll.unregister(fd)
            self._deaf = self._deaf or fd == self._child.control

    def _hear(self, data: bytes) -> None:
        self._lines = (self._lines + data)[-MAX_LINE:]

    def _report(self, nonce: str) -> str | None:
        """What the session reported for this nonce, once it has; other lines are nothing to us."""
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            if nonce and line.startswith(nonce.encode() + b" "):
                return line[len(nonce) + 1 :].decode("ascii", "replace")
        return None

    def _drain(self) -> None:
        """Take what has been printed so far, and no more, for a background job may never stop."""
        size = bytearray(4)
        try:
            fcntl.ioctl(self._child.output, termios.FIONREAD, size)
            (left,) = struct.unpack("i", size)
            while left > 0 and (data := os.read(self._child.output, min(left, 65536))):
                self._output.add(data)
                left -= len(data)
        except BlockingIOError:
            return

    def _limit(self, limit: int) -> None:
        """Output printed between two pieces of code belongs to the second one."""
        before = self._output
        self._output = Output(limit)
        if early := before.text():
            self._output.add(early.encode())

    def _reap(self) -> bool:
        """Collect what has ended; whether there is anything below us still."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child.pid:
                self._ended = status

    def _lost_meanwhile(self) -> bool:
        """Whether the session died, or became unable to report, since its last answer."""
        self._reap()
        return self._ended is not None or self._deaf

    def _start(self) -> Child:
        child = self._kind.start(self._secret)
        self._ended = None
        self._deaf = False
        self._lines = b""
        self._poll = select.poll()
        for fd in (self._wake, child.output, child.control):
            self._poll.register(fd, select.POLLIN)
        self._poll.register(self._requests, 0)
        return child

    def _restart(self) -> None:
        self._kill()
        self._child.close()
        self._child = self._start()

    def _kill(self) -> None:
        """Kill the session and whatever it started, however often that forks meanwhile.

        Orphans come back to us: without a child we have left nobody behind.
        """
        end = time.monotonic() + KILL_SECONDS
        while self._reap() and time.monotonic() < end:
            family = descendants() + ([] if self._ended is not None else [self._child.pid])
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in family:
                    try:
                        os.kill(pid, number)
                    except OSError:  # gone already, or not ours to kill
                        continue
            time.sleep(0.001)


if __name__ == "__main__":
    main()
