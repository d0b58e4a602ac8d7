"""What is asked of a Docker engine. Every method blocks and may be called from any thread."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Set
from typing import Any
from urllib.parse import urlparse

from agentfly_core.types import Isolation, IsolationReport, MissingDependency, ResourceError

log = logging.getLogger("agentfly.resources")

RUN_LABEL, NAME_LABEL, OWNER_LABEL = "agentfly.run", "agentfly.sandbox", "agentfly.pid"
DEFAULT_SOCKET = "/var/run/docker.sock"
REQUEST_SECONDS = 120
REMOVE_SECONDS = 30.0
BUSY, FAILING = 409, 500
"""Its answers where a container is being removed already, by itself, and where something went wrong with it."""


class Engine:
    """A Docker engine, reached through the docker SDK, by a client for each thread.

    Args:
        base_url: where it listens; None takes it from ``DOCKER_HOST``.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._base_url = base_url
        self._local = threading.local()
        self._lock = threading.Lock()
        self._info: Mapping[str, Any] | None = None
        self._images: dict[str, Mapping[str, Any]] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._base_url or os.environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"

    def present(self) -> bool:
        """Whether it is worth asking: its socket exists, or it is elsewhere."""
        parts = urlparse(self.url)
        return parts.scheme != "unix" or os.path.exists(parts.path)

    def report(self, *, network: bool = False) -> IsolationReport:
        """What a hardened container keeps out and bounds under this engine's kernel."""
        info = self._about()
        return IsolationReport(
            level=Isolation.CONTAINER,
            mechanism="docker",
            filesystem="absent",
            network="open" if network else "absent",
            processes="hidden",
            memory="cgroup" if info.get("MemoryLimit") else "none",
            pids="cgroup" if info.get("PidsLimit") else "none",
            cpu="cgroup" if info.get("CpuCfsQuota") else "none",
            disk="sized",
        )

    def filtered(self) -> bool:
        """Whether our system call filter fits the engine's machine."""
        return self._about().get("Architecture") == "x86_64"

    def ensure_image(self, image: str, build: str | None = None) -> None:
        """See that the image is there: build it from the folder ``build``, or else pull it. The log tells the progress.

        Raises:
            ResourceError: it cannot be had.
        """
        with self._lock:
            if image in self._images:
                return
            import docker.errors

            with self._errors():
                client = self._client()
                try:
                    found = client.inspect_image(image)
                except docker.errors.ImageNotFound:
                    self._build(image, build) if build else self._pull(image)
                    found = client.inspect_image(image)
            self._images[image] = found

    def environment(self, image: str) -> dict[str, str]:
        """The variables that the image sets; of one that ``ensure_image`` has seen."""
        pairs = (self._images[image].get("Config") or {}).get("Env") or []
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    def create(
        self, *, image: str, command: list[str], user: str, labels: Mapping[str, str], host: Mapping[str, Any]
    ) -> str:
        """A new container, not started; its id. Its input closes with the first stream attached to it."""
        with self._errors():
            client = self._client()
            made = client.create_container(
                image,
                command,
                user=user,
                labels=dict(labels),
                stdin_open=True,
                entrypoint=[],
                working_dir="/",
                host_config=client.create_host_config(**host),
            )
            return str(made["Id"])

    def attach(self, container: str) -> socket.socket:
        """The stream to a container's first process.

        Raises:
            ResourceError: the engine is reached in a way that gives no plain socket (TLS, SSH).
        """
        with self._errors():
            stream = self._client().attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        plain = getattr(stream, "_sock", None)
        if type(plain) is not socket.socket:
            raise ResourceError(
                f"{self.url}: sandboxes need an engine on a unix socket or plain TCP (forward it by ssh)"
            )
        # A descriptor of its own, and the only one: the client would keep the stream open as long as it pleases.
        with contextlib.closing(plain), contextlib.closing(stream):
            return socket.socket(fileno=os.dup(plain.fileno()))

    def start(self, container: str) -> None:
        """Run it."""
        with self._errors():
            self._client().start(container)

    def remove(self, container: str) -> None:
        """Remove it, and wait until it is gone. An engine that is away for a moment, or busy with it, is asked again.

        Raises:
            ResourceError: it cannot be removed.
        """
        import docker.errors

        deadline = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                with self._errors():
                    self._client().remove_container(container, force=True, v=True)
                return
            except _Gone:
                return
            except ResourceError as error:
                cause = error.__cause__
                refused = isinstance(cause, docker.errors.APIError) and cause.status_code not in (BUSY, FAILING)
                if refused or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def runs(self) -> frozenset[str]:
        """Runs with containers, ended ones included."""
        return frozenset(labels[RUN_LABEL] for _, labels in self._containers(RUN_LABEL))

    def sweep(self, run_id: str, live: Set[str]) -> int:
        """Remove a run's containers except for those of these names; how many there were."""
        found = [c for c, labels in self._containers(f"{RUN_LABEL}={run_id}") if labels.get(NAME_LABEL) not in live]
        for container in found:
            self.remove(container)
        return len(found)

    def _containers(self, label: str) -> list[tuple[str, Mapping[str, str]]]:
        with self._errors():
            found = self._client().containers(all=True, filters={"label": label})
        return [(c["Id"], c["Labels"]) for c in found]

    def _about(self) -> Mapping[str, Any]:
        if self._info is None:
            with self._errors():
                self._info = self._client().info()
        return self._info

    def _client(self) -> Any:
        if not hasattr(self._local, "client"):
            from docker.api import APIClient

            self._local.client = APIClient(base_url=self.url, version="auto", timeout=REQUEST_SECONDS)
        return self._local.client

    def _build(self, image: str, folder: str) -> None:
        log.info("building the image %s from %s", image, folder)
        for step in self._client().build(path=folder, tag=image, rm=True, decode=True):
            if "error" in step:
                raise ResourceError(f"the image {image!r} cannot be built from {folder}: {step['error']}")
            if text := step.get("stream", "").strip():
                log.info("%s: %s", image, text)

    def _pull(self, image: str) -> None:
        import docker.errors
        import docker.utils

        log.info("pulling the image %s", image)
        name, tag = docker.utils.parse_repository_tag(image)
        try:
            for step in self._client().pull(name, tag=tag or "latest", stream=True, decode=True):
                if "error" in step:
                    raise ResourceError(_missing(image, step["error"]))
                if step.get("status") in ("Pull complete", "Already exists"):
                    log.info("%s: layer %s: %s", image, step.get("id", ""), step["status"].lower())
        except docker.errors.APIError as error:
            raise ResourceError(_missing(image, error.explanation or error)) from error

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """The SDK's errors as ours."""
        try:
            import docker.errors
            import requests
        except ModuleNotFoundError as error:
            raise MissingDependency("docker", "the resource kind 'docker'", "agentfly-core[docker]") from error
        try:
            yield
        except docker.errors.NotFound as error:
            raise _Gone(str(error.explanation or error)) from error
        except docker.errors.APIError as error:
            raise ResourceError(f"the Docker engine refuses: {error.explanation or error}") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            hint = "start one, or say where it is with DOCKER_HOST"
            raise ResourceError(f"no Docker engine answers at {self.url}: {hint} ({error})") from error


class _Gone(ResourceError):
    """What is asked for does not exist."""


def _missing(image: str, reason: object) -> str:
    return (
        f"the image {image!r} is not on this machine and cannot be pulled ({reason}). "
        f"Build it with: docker build -t {image} FOLDER (the project's own: docker/sandbox)"
    )
