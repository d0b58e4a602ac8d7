"""What a child of the supervisor does to itself before it runs anything."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from typing import Any

from agentfly_core.resources.sandboxes.inside import landlock, seccomp

SET_DUMPABLE = 4
CAPABILITY_VERSION = 0x20080522


def confine(config: dict[str, Any]) -> None:
    """Give up what the sandbox's configuration takes away, for good. The order matters: rights are needed for rights.

    Raises:
        OSError: something could not be given up; the caller must not go on.
    """
    _volunteer_for_oom_killer()
    if config["cores"]:
        os.sched_setaffinity(0, config["cores"])
    for name, limit in config["rlimits"].items():
        _limit(getattr(resource, f"RLIMIT_{name}"), limit)
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(config["uid"], config["uid"], config["uid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    if config["uid"] is not None or os.getuid() != 0:
        _drop_capabilities()
    rules = config["landlock"]
    if rules is not None:
        landlock.apply(rules["read"], rules["write"], network=config["network"])
    if config["seccomp"]:
        # Where the network is absent its sockets are harmless, and loopback servers are useful.
        seccomp.apply(network=config["network"] or rules is None)


def _volunteer_for_oom_killer() -> None:
    """Where memory of the whole sandbox runs out, a command dies and not the supervisor."""
    ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)  # the supervisor is not, and then /proc/self is root's
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # a nicety that some systems do not offer; the limit holds without it


def _drop_capabilities() -> None:
    """All of them, those too that a program with file capabilities could inherit."""
    header, nothing = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, nothing) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"capset: {os.strerror(code)}")


def _limit(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(which, (limit, limit))
