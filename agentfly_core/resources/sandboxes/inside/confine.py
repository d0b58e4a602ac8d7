"""What a child of the supervisor does to itself before it runs anything."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Any

from agentfly_core.resources.sandboxes.inside import landlock, seccomp

SET_DUMPABLE = 4


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


def _limit(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(which, (limit, limit))
