"""A fenced-off place for code that nobody trusts: what a lease of kind ``process`` or ``docker`` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from agentfly_core.types.resources import Isolation


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """What a sandbox keeps out and bounds, found by a trial and not by hope.

    Attributes:
        level: the weakest of what follows, in one word.
        mechanism: ``bubblewrap``, ``landlock+seccomp``, ``rlimits``, ``docker`` ...
        filesystem: the host's files are open to it, denied by the kernel, or not there at all.
        network: likewise.
        processes: the host's processes can be seen and signalled as any of the user's, signals to them are denied,
            or they are not there.
        memory: not limited, limited for each process, or for all of the sandbox together.
        pids: the number of processes is not limited, limited over a user id of its own, or by a control group.
        cpu: not limited, bound to some cores, or a share enforced by a control group.
        disk: not limited, limited for each file, or a file system of fixed size.
    """

    level: Isolation
    mechanism: str
    filesystem: Literal["open", "denied", "absent"]
    network: Literal["open", "denied", "absent"]
    processes: Literal["seen", "denied", "hidden"]
    memory: Literal["none", "per process", "cgroup"]
    pids: Literal["none", "per user", "cgroup"] = "none"
    cpu: Literal["none", "affinity", "cgroup"] = "none"
    disk: Literal["none", "per file", "sized"] = "none"


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended.

    Attributes:
        exit_code: None if it was killed for running out of time; negative: the signal that killed it; 126 and 127 as
            in a shell: it could not be run, it was not found (``stderr`` says why).
        stdout, stderr: what it wrote, at most ``max_output`` bytes of each.
        timed_out: whether it was killed for running out of time.
        truncated: whether it wrote more than is kept.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One entry of a listing: its path relative to the folder listed, bytes, and seconds since the epoch."""

    path: str
    kind: Literal["file", "directory", "link", "other"]
    size: int
    modified: float


@runtime_checkable
class SandboxProcess(Protocol):
    """A process in a sandbox with its standard input and output at hand, such as a persistent worker."""

    async def write(self, data: bytes) -> None:
        """Send to its standard input; waits while the process does not read.

        Raises:
            BrokenPipeError: it has ended or closed its input.
        """
        ...

    async def read(self, n: int = 65536) -> bytes:
        """At least one and at most ``n`` bytes of its standard output; ``b""`` at its end."""
        ...

    async def close_input(self) -> None:
        """Let it see the end of its standard input."""
        ...

    async def kill(self) -> None:
        """Kill it and its process group; doing so after its end does nothing."""
        ...

    async def wait(self) -> int:
        """Its exit code; negative: the signal that killed it."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """What ``lease.resource`` is for sandboxed kinds. Paths are relative to the workspace unless absolute.

    Every path is resolved inside the sandbox, with the sandboxed code's own rights. All methods raise ``LeaseLost`` or
    ``ResourceError`` once the sandbox is gone, and may be called from any event loop.
    """

    @property
    def report(self) -> IsolationReport: ...

    @property
    def workspace(self) -> str:
        """The path, inside, of the one folder that is meant to be written to; empty at the start of each lease."""
        ...

    @property
    def python(self) -> str:
        """The path, inside, of a Python interpreter."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        max_output: int = 1_000_000,
    ) -> Completed:
        """Run a command to its end, or kill it and its process group after ``timeout`` seconds or on cancellation.

        What it started in the background lives on until the lease ends; output written after its end is lost.
        """
        ...

    async def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stderr: Literal["discard", "stdout"] = "discard",
    ) -> SandboxProcess:
        """Start a process and talk to it. It ends with the lease at the latest."""
        ...

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """The first ``max_bytes`` of a regular file.

        Raises:
            OSError: it does not exist, is no regular file, or may not be read.
        """
        ...

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, making its parents.

        Raises:
            OSError: it cannot be written; a full disk included.
        """
        ...

    async def list_files(
        self, path: str = ".", *, recursive: bool = False, max_entries: int = 10_000
    ) -> list[FileEntry]:
        """Entries of a folder sorted by path, links not followed; the first ``max_entries`` found.

        Raises:
            OSError: it does not exist or is no folder.
        """
        ...
