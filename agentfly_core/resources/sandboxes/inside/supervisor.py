"""The first process of a sandbox: starts commands, carries their input and output, ends them.

It talks to the host over its standard input and output and trusts nothing below it. Where it can it runs with more
rights than the commands: under another user id, outside Landlock, as process 1 of its namespace.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
import time
from typing import Any, NoReturn

from agentfly_core.resources.sandboxes.inside import frames, mounts, processes
from agentfly_core.resources.sandboxes.inside.channels import Channel
from agentfly_core.resources.sandboxes.inside.confine import confine
from agentfly_core.resources.sandboxes.inside.files import perform, write_all

SET_DUMPABLE, SET_CHILD_SUBREAPER = 4, 36
CLEAR_SECONDS = 5.0


class Supervisor:
    """Serves one host until the stream ends.

    Args:
        config: ``workspace``, ``environment``, ``wipe`` (folders to empty), ``mounts`` (folder to MiB) and what
            ``confine`` takes.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._parser = frames.Parser()
        self._channels: dict[int, Channel] = {}
        self._by_pid: dict[int, Channel] = {}
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Process 1 of a namespace takes from below only signals that it has asked for: it asks for none that ends it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.getpid() != 1:
            signal.signal(signal.SIGTERM, lambda *_: self._end())
        self._selector.register(0, selectors.EVENT_READ, None)
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)

    def serve(self) -> NoReturn:
        """Answer until the host is gone, then end everything."""
        self._send(frames.READY, 0, json.dumps({"python": sys.executable, "pid": os.getpid()}).encode())
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    key.data()
                    continue
                data = os.read(0, 1 << 16)
                if not data:
                    self._end()
                for kind, channel, payload in self._parser.feed(data):
                    self._handle(kind, channel, payload)

    def _handle(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.START:
            self._start(number, json.loads(payload.decode()))
        elif kind == frames.CLEAR:
            self._send(frames.CLEARED, number, json.dumps(self._clear()).encode())
        elif number in self._channels:
            channel = self._channels[number]
            if kind == frames.INPUT:
                channel.feed(payload)
            elif kind == frames.CLOSE:
                channel.close_input()
            elif kind == frames.TAKEN:
                channel.taken(int.from_bytes(payload, "big"))
            elif kind == frames.KILL and channel.pid in self._by_pid:
                processes.kill_group(channel.pid)  # once it is collected its number may be another's

    def _start(self, number: int, request: dict[str, Any]) -> None:
        pipes: list[int] = []
        try:
            for _ in range(3 if request["stderr"] == "pipe" else 2):
                pipes += os.pipe()
            if request["stderr"] == "discard":
                pipes.append(os.open(os.devnull, os.O_WRONLY))
            pid = os.fork()
        except OSError as error:
            for descriptor in pipes:
                os.close(descriptor)
            self._send(frames.ERRORS, number, f"the sandbox can start no process: {error.strerror}\n".encode())
            self._send(frames.EXIT, number, json.dumps(126).encode())
            self._send(frames.END, number)
            return
        theirs = [pipes[0], pipes[3], pipes[-1]]  # its errors: a pipe, nowhere, or where its output goes
        if pid == 0:
            self._become(request, theirs)
        for descriptor in set(theirs):
            os.close(descriptor)
        errors: int | None = pipes[4] if len(pipes) == 6 else None
        channel = Channel(number, pid, (pipes[1], pipes[2], errors), self._selector, self._send)
        self._channels[number] = self._by_pid[pid] = channel

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
        """In the child: put on what the command gets and turn into it."""
        code = 126
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            for wanted, descriptor in enumerate(descriptors):
                os.dup2(descriptor, wanted)
            os.closerange(3, 4096)
            os.umask(0o022)
            confine(self._config)
            os.chdir(self._config["workspace"])
            os.chdir(request["cwd"] or ".")
            if "call" in request:
                os._exit(perform(request["call"], request["arguments"]))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            environment = {**self._config["environment"], **request["env"]}
            os.execvpe(request["argv"][0], request["argv"], environment)
        except FileNotFoundError as error:
            code = 127
            write_all(2, f"{error.filename}: {error.strerror}\n".encode(errors="replace"))
        except BaseException as error:
            write_all(2, f"cannot run the command: {error}\n".encode(errors="replace"))
        finally:
            os._exit(code)

    def _reap(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass  # emptied
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        channel = self._by_pid.pop(pid, None)
        if channel is not None and channel.number in self._channels:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._send(frames.EXIT, channel.number, json.dumps(code).encode())
            channel.exited(lambda: self._channels.pop(channel.number, None))

    def _clear(self) -> bool:
        """End every process and wipe what was written; whether nothing is left that the next holder could find."""
        for channel in list(self._channels.values()):
            channel.abandon()
        self._channels.clear()
        if not self._kill_all():
            return False
        pid = os.fork()
        if pid == 0:
            self._become({"call": "wipe", "arguments": {"paths": self._config["wipe"]}, "cwd": None}, [0, 2, 2])
        _, status = os.waitpid(pid, 0)
        uid = self._config["uid"] if self._config["uid"] is not None else os.getuid()
        return status == 0 and not processes.shared_memory_of(uid)

    def _kill_all(self) -> bool:
        deadline = time.monotonic() + CLEAR_SECONDS
        while time.monotonic() < deadline:
            processes.kill_below(self._config["uid"])
            try:
                while True:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    self._by_pid.pop(pid, None)
            except ChildProcessError:
                return True
            time.sleep(0.001)
        return False

    def _end(self) -> NoReturn:
        self._kill_all()
        os._exit(0)

    def _send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        try:
            write_all(1, frames.frame(kind, channel, payload))
        except OSError:
            self._end()


def main(config: dict[str, Any]) -> NoReturn:
    """Serve; standard input and output are the stream to the host."""
    libc = ctypes.CDLL(None)
    libc.prctl(SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if config["mounts"]:
        mounts.mount_folders(config["mounts"], config["uid"])
    Supervisor(config).serve()
