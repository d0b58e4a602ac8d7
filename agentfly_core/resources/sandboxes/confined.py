"""The tiers without namespaces: Landlock and seccomp, and resource limits alone. Both keep a folder on the host."""

from __future__ import annotations

import os
from typing import Any

from agentfly_core.resources.sandboxes import bubblewrap, interpreters
from agentfly_core.resources.sandboxes.inside import landlock, seccomp
from agentfly_core.resources.sandboxes.plan import Launch, Plan, cores, environment, rlimits
from agentfly_core.resources.sandboxes.state import MARK
from agentfly_core.resources.sandboxes.uids import threads_of
from agentfly_core.types import Isolation, IsolationReport, ResourceError

LANDLOCK, RLIMITS = "landlock+seccomp", "rlimits"
DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/null")
KERNEL = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo")
SCOPED_SIGNALS = 6
"""The version of Landlock that keeps signals inside."""


def launch_landlock(plan: Plan) -> Launch:
    """The kernel denies what lies outside the folder, the network and signals to others."""
    settings = (*bubblewrap.SETTINGS, *(bubblewrap.NETWORK_SETTINGS if plan.spec.network else ()))
    read = ("/usr", *bubblewrap.SYSTEM, *settings, *interpreters.paths(), *DEVICES, *KERNEL)
    rules = {"read": list(read), "write": [*_folders(plan), "/dev/null"]}
    config = {**_config(plan), "landlock": rules, "seccomp": True}
    denied = plan.uid is not None or landlock.version() >= SCOPED_SIGNALS
    report = IsolationReport(
        level=Isolation.SANDBOX,
        mechanism=LANDLOCK,
        filesystem="denied",
        network="open" if plan.spec.network else "denied",
        processes="denied" if denied else "seen",
        **_bounds(plan),
    )
    return Launch((interpreters.own(),), config, report)


def launch_rlimits(plan: Plan) -> Launch:
    """Limits against accidents; no security boundary."""
    config = {**_config(plan), "landlock": None, "seccomp": False}
    report = IsolationReport(
        level=Isolation.PROCESS,
        mechanism=RLIMITS,
        filesystem="open",
        network="open",
        processes="seen",
        **_bounds(plan),
    )
    return Launch((interpreters.own(),), config, report)


def supported() -> bool:
    """Whether this kernel has Landlock, and this machine our system call filter."""
    return landlock.version() > 0 and seccomp.supported()


def _config(plan: Plan) -> dict[str, Any]:
    if plan.spec.mounts:
        raise ResourceError("mounts need bubblewrap or a container: this sandbox shares the host's file system")
    workspace, temporary = _folders(plan)
    processes = plan.limits.pids
    if plan.uid is None:  # counted together with everything else that the user runs
        processes += threads_of(os.getuid())
    # Processes without a user id or a namespace of their own are found by a mark, unless they take pains to lose it.
    mark = {} if plan.uid is not None else {MARK: plan.folder.name}
    return {
        "workspace": workspace,
        "environment": {**environment(plan, workspace, temporary), **mark},
        "wipe": [workspace, temporary],
        "uid": plan.uid,
        "rlimits": rlimits(plan, processes=processes),
        "cores": cores(plan),
        "network": plan.spec.network,
        "mounts": dict.fromkeys(_folders(plan), plan.limits.disk) if plan.mountable else {},
    }


def _folders(plan: Plan) -> tuple[str, str]:
    return str(plan.folder / "workspace"), str(plan.folder / "tmp")


def _bounds(plan: Plan) -> dict[str, Any]:
    counted = plan.uid is not None or os.getuid() != 0  # the kernel does not count root's processes
    return {
        "memory": "cgroup" if plan.grouped else "per process",
        "pids": "cgroup" if plan.grouped else "per user" if counted else "none",
        "cpu": "cgroup" if plan.grouped else "affinity",
        "disk": "sized" if plan.mountable else "per file",
    }
