"""Sandboxes as Docker containers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid

from agentfly_core.resources.handle import refuse_unsupported
from agentfly_core.resources.sandboxes.container import ContainerSandbox
from agentfly_core.resources.sandboxes.engine import Engine
from agentfly_core.resources.sandboxes.io_thread import on_io
from agentfly_core.resources.sandboxes.plan import Limits
from agentfly_core.types import Isolation, IsolationReport, MissingDependency, ResourceError, ResourceSpec
from agentfly_core.types.resources import check_limits

DEFAULT_IMAGE = "agentfly-sandbox"


class DockerProvider:
    """Containers without network, capabilities and a writable root, run by nobody; commands go to a supervisor inside.

    The image needs a Python of version 3.9 or newer and nothing else. It is pulled or built once where it is missing.
    A container ends with the process that started it, whatever ends that. Of a spec's options these are known:
    ``python``, the interpreter inside (``python3``), and ``build``, a folder with a Dockerfile to build the image from.

    Args:
        image: for specs that name none.
        memory: MiB. pids: processes and threads. cpu: cores. disk: MiB, see ``Limits``: for specs that name none.
        starts: how many containers may be starting at once.
        base_url: of the engine; None takes it from ``DOCKER_HOST``.
        reset_timeout: seconds that ending a sandbox's commands and wiping its files may take before it is replaced.
    """

    isolation = Isolation.CONTAINER

    def __init__(
        self,
        *,
        image: str = DEFAULT_IMAGE,
        memory: int = 1024,
        pids: int = 128,
        cpu: float = 1.0,
        disk: int = 256,
        starts: int = 8,
        base_url: str | None = None,
        reset_timeout: float = 20.0,
    ) -> None:
        self._image = image
        self._limits = Limits(memory, pids, cpu, disk)
        check_limits(None, starts=starts)
        self._engine = Engine(base_url)
        self._starts = starts
        self._starting: asyncio.Semaphore | None = None
        self._reset_timeout = reset_timeout
        self._lock = threading.Lock()
        self._live: set[str] = set()

    def report(self) -> IsolationReport:
        """What its containers keep out and bound, as far as the engine says that its kernel can.

        Raises:
            ResourceError: no engine answers.
            MissingDependency: the package docker is not installed.
        """
        return self._engine.report()

    async def start(self, spec: ResourceSpec, *, run_id: str) -> ContainerSandbox:
        """A new container. Cancelling the call leaves nothing behind.

        Raises:
            ResourceError: no engine answers, the image is missing and cannot be had, or the container does not start.
            MissingDependency: the package docker is not installed.
        """
        refuse_unsupported(spec, "image", "command", "environment", "mounts", "cpu", "memory", "pids", "disk", "setup")
        return await on_io(self._start(spec, run_id), dispose=self._stop)

    async def health(self, instance: ContainerSandbox) -> bool:
        """Whether its supervisor answers to the host."""
        return not instance.broken

    async def reset(self, instance: ContainerSandbox) -> bool:
        """End all its processes and wipe all that they wrote; False says that it must be replaced."""
        return await instance.clear(timeout=self._reset_timeout)

    async def stop(self, instance: ContainerSandbox) -> None:
        """Remove the container; calling it twice does nothing."""
        await on_io(self._stop(instance))

    async def runs(self) -> frozenset[str]:
        """Runs of which the engine has containers; none where no engine answers."""
        if not self._engine.present():
            return frozenset()
        with contextlib.suppress(ResourceError, MissingDependency):
            return await asyncio.to_thread(self._engine.runs)
        return frozenset()

    async def sweep(self, run_id: str) -> int:
        """Remove the containers that a crashed run left; how many there were. None where there is no engine.

        Raises:
            ResourceError: there is one, but it does not answer.
        """
        if not self._engine.present():
            return 0
        with contextlib.suppress(MissingDependency):
            return await asyncio.to_thread(self._engine.sweep, run_id, frozenset(self._live))
        return 0

    async def _start(self, spec: ResourceSpec, run_id: str) -> ContainerSandbox:
        if self._starting is None:
            self._starting = asyncio.Semaphore(self._starts)
        options = spec.arguments()
        if unknown := set(options) - {"python", "build"}:
            raise ResourceError(f"unknown options {sorted(unknown)} of a docker resource; known: build, python")
        async with self._starting:
            image = spec.image or self._image
            await asyncio.to_thread(self._engine.ensure_image, image, options.get("build"))
            report = await asyncio.to_thread(self._engine.report, network=spec.network)
            limits, name = self._limits.of(spec), uuid.uuid4().hex
            python = str(options.get("python", "python3"))
            sandbox = ContainerSandbox(
                spec, report, name, engine=self._engine, image=image, python=python, limits=limits, run_id=run_id
            )
            self._live.add(name)
            try:
                await sandbox.start()
            except BaseException:
                await self._stop(sandbox)
                raise
            return sandbox

    async def _stop(self, sandbox: ContainerSandbox) -> None:
        try:
            await sandbox.stop()
        finally:
            self._live.discard(sandbox.name)  # what could not be removed is for the sweep
