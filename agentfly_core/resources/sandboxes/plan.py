"""What one sandboxed process needs before it is launched."""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.types import IsolationReport, ResourceSpec
from agentfly_core.types.resources import check_limits

HANDED_OVER = "@descriptor"
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a sandbox.

    Attributes:
        memory: MiB. pids: processes and threads. cpu: cores. disk: MiB in the workspace, and as much again for
            temporary files.

    Raises:
        UsageError: one of them is none.
    """

    memory: int = 1024
    pids: int = 128
    cpu: float = 1.0
    disk: int = 256

    def __post_init__(self) -> None:
        check_limits(self.cpu, memory=self.memory, pids=self.pids, disk=self.disk)

    def of(self, spec: ResourceSpec) -> Limits:
        """What the spec says, and these where it says nothing."""
        return Limits(
            memory=self.memory if spec.memory is None else spec.memory,
            pids=self.pids if spec.pids is None else spec.pids,
            cpu=self.cpu if spec.cpu is None else spec.cpu,
            disk=self.disk if spec.disk is None else spec.disk,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A sandbox about to be launched.

    Attributes:
        spec, limits: what is asked for.
        uid: a user id of its own, or None where the user cannot give it one.
        folder: on the host, for the tiers that have no file system of their own.
        grouped: whether a control group bounds it.
        mountable: whether its supervisor may mount file systems of fixed size.
        python: the interpreter for commands.
    """

    spec: ResourceSpec
    limits: Limits
    uid: int | None
    folder: Path
    grouped: bool
    mountable: bool
    python: str


@dataclass(frozen=True, slots=True)
class Launch:
    """How a tier starts a supervisor.

    Attributes:
        argv: ends with an interpreter; the bootstrap is added.
        config: the supervisor's (``inside.supervisor``).
        report: what holds for this sandbox.
        files: contents of files that are handed over open; ``HANDED_OVER`` and an index in argv becomes the descriptor.
        nested: whether killing the first process ends all others.
    """

    argv: tuple[str, ...]
    config: dict[str, Any]
    report: IsolationReport
    files: tuple[bytes, ...] = ()
    nested: bool = False


def rlimits(plan: Plan, *, processes: int | None) -> dict[str, int]:
    """Limits that every command takes with it. ``processes`` counts all of its user's."""
    limits = {"CORE": 0, "NOFILE": 1024, "FSIZE": plan.limits.disk << 20, "MEMLOCK": 1 << 20}
    if processes is not None:
        limits["NPROC"] = processes
    if not plan.grouped:
        limits["AS"] = plan.limits.memory << 20
    return limits


def cores(plan: Plan) -> list[int] | None:
    """The cores it is bound to where no control group shares them out."""
    if plan.grouped or not hasattr(os, "sched_getaffinity"):
        return None
    available = sorted(os.sched_getaffinity(0))
    wanted = max(1, math.ceil(plan.limits.cpu))
    return sorted(random.sample(available, min(wanted, len(available))))


def environment(plan: Plan, home: str, temporary: str) -> dict[str, str]:
    """What every command finds in its environment."""
    plain = {"PATH": PATH, "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8", "USER": "sandbox"}
    return {**plain, **dict(plan.spec.environment)}
