"""One container: created, talked to over its attached stream, removed."""

from __future__ import annotations

import os
import socket
from typing import Any

from agentfly_core.resources.sandboxes.bundle import BOOTSTRAP
from agentfly_core.resources.sandboxes.engine import NAME_LABEL, OWNER_LABEL, RUN_LABEL, Engine
from agentfly_core.resources.sandboxes.link import Link
from agentfly_core.resources.sandboxes.plan import Limits
from agentfly_core.resources.sandboxes.sandbox import SupervisedSandbox
from agentfly_core.types import IsolationReport, ResourceSpec

NOBODY = 65534
WORKSPACE, TEMPORARY, SHARED, QUEUES = "/workspace", "/tmp", "/dev/shm", "/dev/mqueue"
SHARED_MIB = 64
OWN_PROCESSES = 2
"""Of the supervisor, and one to start commands with."""
STANDARD_ERROR = 2
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class AttachedLink(Link):
    """A stream in which the engine has put the container's output and errors, each piece under a header of 8 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._received += data
        while len(self._received) >= 8:
            end = 8 + int.from_bytes(self._received[4:8], "big")
            if len(self._received) < end:
                return
            source, piece = self._received[0], bytes(self._received[8:end])
            del self._received[:end]
            if source == STANDARD_ERROR:
                self.said = (self.said + piece)[-4000:]
            else:
                super().data_received(piece)


class ContainerSandbox(SupervisedSandbox):
    """A supervisor as process 1 of a container. The container removes itself when its stream closes."""

    link: AttachedLink

    def __init__(
        self,
        spec: ResourceSpec,
        report: IsolationReport,
        name: str,
        *,
        engine: Engine,
        image: str,
        python: str,
        limits: Limits,
        run_id: str,
    ) -> None:
        config = {
            "workspace": WORKSPACE,
            "environment": {"PATH": PATH, **engine.environment(image), **_environment(spec)},
            "wipe": [WORKSPACE, TEMPORARY, SHARED, QUEUES],
            "uid": None,
            "rlimits": {"CORE": 0},
            "cores": None,
            "landlock": None,
            "seccomp": engine.filtered(),
            "network": spec.network,
            "mounts": {},
        }
        super().__init__(spec, report, name, config, python="", link=AttachedLink())
        self.id = ""
        self._engine = engine
        self._run_id = run_id
        self._request = {"image": image, "command": [python, "-I", "-S", "-c", BOOTSTRAP], **_hardened(spec, limits)}

    def _open_stream(self) -> socket.socket:
        labels = {RUN_LABEL: self._run_id, NAME_LABEL: self.name, OWNER_LABEL: str(os.getpid())}
        self.id = self._engine.create(labels=labels, **self._request)
        return self._engine.attach(self.id)

    def _begin(self) -> None:
        self._engine.start(self.id)

    def _end(self) -> None:
        if self.id:
            self._engine.remove(self.id)

    def _obituary(self) -> str:
        said = self.link.said.decode(errors="replace").strip()
        return said or self.link.lost or "its supervisor does not answer"


def _environment(spec: ResourceSpec) -> dict[str, str]:
    return {"HOME": WORKSPACE, "TMPDIR": TEMPORARY, "LANG": "C.UTF-8", "USER": "sandbox", **dict(spec.environment)}


def _hardened(spec: ResourceSpec, limits: Limits) -> dict[str, Any]:
    """How the container is made, as arguments of ``Engine.create``."""
    sized = f"rw,exec,nosuid,nodev,mode=1777,size={limits.disk << 20}"
    size = limits.memory << 20
    return {
        "user": f"{NOBODY}:{NOBODY}",
        "host": {
            "auto_remove": True,
            "network_mode": "bridge" if spec.network else "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "ipc_mode": "private",
            "mem_limit": size,
            "memswap_limit": size,
            "nano_cpus": round(limits.cpu * 1e9),
            "pids_limit": limits.pids + OWN_PROCESSES,
            "shm_size": SHARED_MIB << 20,
            "tmpfs": {WORKSPACE: sized, TEMPORARY: sized},
            "ulimits": [{"name": "nofile", "soft": 1024, "hard": 1024}, {"name": "core", "soft": 0, "hard": 0}],
            "binds": {
                source: {"bind": target, "mode": "rw" if writable else "ro"} for source, target, writable in spec.mounts
            },
        },
    }
