"""A Redis server of the tests' own, and a place for the marks of their runs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_marks(tmp_path_factory, monkeypatch):
    """No test sweeps what another, or the machine's user, has running."""
    monkeypatch.setenv("AGENTFLY_STATE_DIR", str(tmp_path_factory.mktemp("state")))


class RedisServer:
    """A real server without persistence on a unix socket."""

    def __init__(self, *options: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="redis")  # short: a socket's path has a limit
        self.options = options
        self.url = f"unix://{self.folder}/socket"
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        arguments = ["--port", "0", "--unixsocket", f"{self.folder}/socket", "--save", "", "--dir", self.folder]
        with Path(self.folder, "log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", *arguments, *self.options], stdout=log, stderr=log)
        while not self.ask("PING").startswith((b"+PONG", b"-NOAUTH")):
            assert self.process.poll() is None, Path(self.folder, "log").read_text()
            time.sleep(0.02)

    def ask(self, command: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(f"{self.folder}/socket")
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(100_000)
            except OSError:
                return b""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def known(self, name: str) -> str:
        """A pool that this server has counted before, so that the first grants need not wait out its start."""
        server = next(x for x in self.ask("INFO server").decode().splitlines() if x.startswith("run_id:"))[7:]
        assert self.ask(f"HSET agentfly:{{{name}}}:meta server {server} epoch first quiet 0").startswith(b":")
        return name

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def redis_servers():
    """Starts servers; each is stopped in the end."""
    pytest.importorskip("redis", reason="needs the package redis")
    if shutil.which("redis-server") is None:
        if os.environ.get("REQUIRE_REDIS") == "1":
            pytest.fail("REQUIRE_REDIS=1, but there is no redis-server")
        pytest.skip("needs redis-server")
    servers: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        servers.append(RedisServer(*options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
