"""One sandboxed process on this machine: launched, cleared, ended."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from agentfly_core.resources.sandboxes import cgroups, uids
from agentfly_core.resources.sandboxes.bundle import BOOTSTRAP
from agentfly_core.resources.sandboxes.link import Link
from agentfly_core.resources.sandboxes.plan import HANDED_OVER, Launch
from agentfly_core.resources.sandboxes.sandbox import SupervisedSandbox
from agentfly_core.resources.sandboxes.state import MARK, end_marked, remove_folder
from agentfly_core.resources.sandboxes.trees import kill_tree
from agentfly_core.types import ResourceSpec

STOP_SECONDS = 15.0
"""What a supervisor gets to end everything below it, before that is done from outside."""
KILL_SECONDS = 60.0
"""What killed processes may take to end: their memory, with millions of files in it perhaps, is freed first."""
SHELL = "/bin/sh"
JOIN = 'for file in $JOIN; do echo 0 > "$file" || exit 97; done; unset JOIN; '
"""Run before anything else, so that no process of the sandbox is ever outside its control group."""
NESTED, REPLACED = '"$@"; exit $?', 'exec "$@"'


class LocalSandbox(SupervisedSandbox):
    """A supervisor in a process of this machine, and what belongs to it.

    Args:
        uid: a user id of its own, released at the end.
        group: a control group of its own, removed at the end.
        folder: removed at the end.
    """

    def __init__(
        self,
        spec: ResourceSpec,
        launch: Launch,
        name: str,
        *,
        python: str,
        folder: Path,
        uid: uids.PrivateUid | None,
        group: cgroups.ControlGroup | None,
    ) -> None:
        super().__init__(spec, launch.report, name, launch.config, python=python, link=Link())
        self.folder = folder
        self.uid = uid
        self.group = group
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the sandbox

    @property
    def pid(self) -> int | None:
        """Of its first process, on the host."""
        return self._process.pid if self._process else None

    def _open_stream(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._spawn(theirs)
            except BaseException:
                ours.close()
                raise
        return ours

    def _begin(self) -> None:
        """It runs since its stream was opened."""

    def _end(self) -> None:
        """The end of its stream ends the supervisor, which ends all others; what should survive that is hunted down."""
        with ExitStack() as stack:
            stack.callback(self._said.close)
            stack.callback(remove_folder, self.folder)
            if self.uid is not None:
                stack.callback(self.uid.release)
                stack.callback(uids.kill_user, self.uid.number, seconds=KILL_SECONDS)
            elif not self._launch.nested:
                stack.callback(end_marked, {self.name}, seconds=KILL_SECONDS)
            if self.group is not None:
                stack.callback(self.group.remove, seconds=KILL_SECONDS)
            if self._process is not None:
                stack.callback(_end_process, self._process, 0.0 if self.stuck else STOP_SECONDS)
            if self.group is not None:
                stack.callback(self.group.unthrottle)

    def _spawn(self, stream: socket.socket) -> None:
        join = " ".join(self.group.joining()) if self.group else ""
        # A nested sandbox dies with its parent, which must be a process then and not one of our threads.
        script = f"{JOIN if join else ''}{NESTED if self._launch.nested else REPLACED}"
        with _open_files(self._launch.files) as descriptors:
            numbers = {f"{HANDED_OVER}{index}": str(number) for index, number in enumerate(descriptors)}
            command = [numbers.get(argument, argument) for argument in self._launch.argv]
            environment = {MARK: self.name, "PATH": os.defpath, **({"JOIN": join} if join else {})}
            self._process = subprocess.Popen(
                [SHELL, "-c", script, "sandbox", *command, "-I", "-S", "-c", BOOTSTRAP],
                stdin=stream.fileno(),
                stdout=stream.fileno(),
                stderr=self._said,
                pass_fds=descriptors,
                env=environment,
                cwd="/",
                start_new_session=True,
            )

    def _obituary(self) -> str:
        said = ""
        with contextlib.suppress(ValueError):
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()[-1000:]
        code = self._process.poll() if self._process else None
        return said or (self.link.lost if code is None else f"its process ended with code {code}")


def _end_process(process: subprocess.Popen[bytes], patience: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
        return
    try:
        kill_tree(process.pid, seconds=KILL_SECONDS)
    finally:
        process.kill()
        process.wait(KILL_SECONDS)


@contextlib.contextmanager
def _open_files(contents: tuple[bytes, ...]) -> Iterator[list[int]]:
    """Files in memory, open for reading from their beginning."""
    with ExitStack() as stack:
        descriptors = []
        for content in contents:
            descriptor = os.memfd_create("agentfly")
            stack.callback(os.close, descriptor)
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            descriptors.append(descriptor)
        yield descriptors
