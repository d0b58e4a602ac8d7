"""The strongest tier without a container engine: namespaces through ``bwrap``. Works for root and for users."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from agentfly_core.resources.sandboxes import interpreters
from agentfly_core.resources.sandboxes.inside import seccomp
from agentfly_core.resources.sandboxes.plan import HANDED_OVER, Launch, Plan, cores, environment, rlimits
from agentfly_core.types import Isolation, IsolationReport

NAME = "bubblewrap"
WORKSPACE, TEMPORARY, SHARED = "/workspace", "/tmp", "/dev/shm"
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into /usr on most systems, folders on some."""
SETTINGS = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
)
NETWORK_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services")
SHARED_MIB = 64


def executable() -> str | None:
    """The path of ``bwrap``, on the PATH or beside the interpreter."""
    beside = Path(sys.executable).parent / "bwrap"
    return shutil.which("bwrap") or (str(beside) if beside.exists() else None)


def launch(plan: Plan) -> Launch:
    """Namespaces with nothing of the host but its programs, read-only."""
    program = executable()
    assert program is not None
    options = [
        *_programs(),
        *("--proc", "/proc", "--dev", "/dev"),
        *_folder(SHARED, SHARED_MIB),
        *_folder(TEMPORARY, plan.limits.disk),
        *_folder(WORKSPACE, plan.limits.disk),
        *("--perms", "0444", "--ro-bind-data", f"{HANDED_OVER}0", "/etc/passwd"),
        *("--perms", "0444", "--ro-bind-data", f"{HANDED_OVER}1", "/etc/group"),
        *_settings(plan),
        *_mounts(plan),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if plan.spec.network else ("--unshare-net",)),
        *("--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--chdir", "/"),
    ]
    if plan.uid is not None:
        options += ["--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "KILL"):
            options += ["--cap-add", f"CAP_{capability}"]
    config = {
        "workspace": WORKSPACE,
        "environment": environment(plan, WORKSPACE, TEMPORARY),
        "wipe": [WORKSPACE, TEMPORARY, SHARED],
        "uid": plan.uid,
        "rlimits": rlimits(plan, processes=plan.limits.pids),
        "cores": cores(plan),
        "landlock": None,
        "seccomp": seccomp.supported(),
        "network": plan.spec.network,
        "mounts": {},
    }
    argv = (program, *options, "--", interpreters.own())
    return Launch(argv, config, report(plan), _accounts(plan), nested=True)


def report(plan: Plan) -> IsolationReport:
    """What the namespaces keep out and bound."""
    return IsolationReport(
        level=Isolation.SANDBOX,
        mechanism=NAME,
        filesystem="absent",
        network="open" if plan.spec.network else "absent",
        processes="hidden",
        memory="cgroup" if plan.grouped else "per process",
        pids="cgroup" if plan.grouped else "per user",
        cpu="cgroup" if plan.grouped else "affinity",
        disk="sized",
    )


def _programs() -> list[str]:
    options = ["--ro-bind", "/usr", "/usr"]
    for path in SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    made: set[str] = set()
    for path in interpreters.paths():
        for parent in reversed(Path(path).parents[:-1]):
            if str(parent) not in made:  # at 0755 here, whatever it is outside
                options += ["--perms", "0755", "--dir", str(parent)]
                made.add(str(parent))
        options += ["--ro-bind", path, path]
        made.add(path)
    return options


def _folder(path: str, mib: int) -> list[str]:
    return ["--perms", "1777", "--size", str(mib << 20), "--tmpfs", path]


def _settings(plan: Plan) -> list[str]:
    options = []
    for path in (*SETTINGS, *(NETWORK_SETTINGS if plan.spec.network else ())):
        options += ["--ro-bind-try", path, path]
    return options


def _mounts(plan: Plan) -> list[str]:
    options = []
    for source, target, writable in plan.spec.mounts:
        options += ["--bind" if writable else "--ro-bind", source, target]
    return options


def _accounts(plan: Plan) -> tuple[bytes, bytes]:
    uid = os.getuid() if plan.uid is None else plan.uid
    gid = os.getgid() if plan.uid is None else plan.uid
    passwd = f"root:x:0:0::/:/bin/false\nsandbox:x:{uid}:{gid}::{WORKSPACE}:/bin/sh\n"
    return passwd.encode(), f"root:x:0:\nsandbox:x:{gid}:\n".encode()
