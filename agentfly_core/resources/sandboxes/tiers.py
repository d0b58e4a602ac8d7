"""Which kinds of sandboxed process this machine can run: found out by running one and trying to get out."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.resources.sandboxes import bubblewrap, confined
from agentfly_core.resources.sandboxes.plan import Launch, Plan
from agentfly_core.types import IsolationReport, ResourceError, Sandbox

PROBE_SECONDS = 60.0
PROBE = """
import json, os, socket, sys
def works(action):
    try:
        action()
    except OSError:
        return False
    return True
canary, port, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def connect():
    socket.create_connection(("127.0.0.1", port), 5).close()
def namespace():
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
found = {"file": works(lambda: open(canary).close()), "write": works(lambda: open("x", "w").close())}
found.update(network=works(connect), signal=works(lambda: os.kill(pid, 0)), namespace=namespace())
print(json.dumps(found))
"""
"""Run inside: what of the host it can reach, its process namespace, and whether it can write to its workspace."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One kind of sandboxed process.

    Attributes:
        name: as in ``IsolationReport.mechanism``.
        launch: makes the command line and the supervisor's configuration.
        absent: why it cannot work here, empty if a trial is worthwhile.
        needs_uid: whether root must be able to give it a user id of its own.
        foldered: whether its workspace is a folder of the host.
    """

    name: str
    launch: Callable[[Plan], Launch]
    absent: Callable[[], str]
    needs_uid: bool
    foldered: bool


TIERS = (
    Tier(
        bubblewrap.NAME,
        bubblewrap.launch,
        lambda: "" if bubblewrap.executable() else "there is no bwrap: install the package bubblewrap",
        needs_uid=True,
        foldered=False,
    ),
    Tier(
        confined.LANDLOCK,
        confined.launch_landlock,
        lambda: "" if confined.supported() else "it needs Linux 5.13 or newer with Landlock, on x86_64",
        needs_uid=True,
        foldered=True,
    ),
    Tier(confined.RLIMITS, confined.launch_rlimits, lambda: "", needs_uid=False, foldered=True),
)
"""Strongest first."""


async def probe(sandbox: Sandbox) -> None:
    """Try from inside to reach what the sandbox's report says cannot be reached.

    Raises:
        ResourceError: something can, or nothing runs at all.
    """
    report = sandbox.report
    with tempfile.NamedTemporaryFile("w") as canary, closing(socket.socket()) as server:
        os.chmod(canary.name, 0o644)
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        arguments = [canary.name, str(server.getsockname()[1]), str(os.getpid())]
        done = await sandbox.run([sandbox.python, "-I", "-c", PROBE, *arguments], timeout=PROBE_SECONDS)
    if done.exit_code != 0:
        said = (done.stderr or done.stdout)[-500:].decode(errors="replace").strip()
        raise ResourceError(f"{sandbox.python} does not run inside: {said or done}")
    found = json.loads(done.stdout)
    wrong = [what for what, bad in _contradictions(report, found).items() if bad]
    if wrong:
        raise ResourceError(f"it does not hold: {', '.join(wrong)}")


def _contradictions(report: IsolationReport, found: dict[str, object]) -> dict[str, bool]:
    own = Path("/proc/self/ns/pid")
    return {
        "its workspace cannot be written": not found["write"],
        "a file of the host can be read": report.filesystem != "open" and bool(found["file"]),
        "the network can be reached": report.network != "open" and bool(found["network"]),
        "a process of the host can be signalled": report.processes == "denied" and bool(found["signal"]),
        "processes of the host can be seen": report.processes == "hidden"
        and found["namespace"] in ("", os.readlink(own) if own.exists() else ""),
    }
