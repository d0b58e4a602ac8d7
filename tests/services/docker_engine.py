"""A Docker engine and an image for the tests, without any registry.

As a script, as root on Debian or Ubuntu: installs what is missing, starts a private engine unless one answers already,
imports a small image made of this machine's own Python and busybox, and prints what to export:

    eval "$(python tests/services/docker_engine.py)"
"""

from __future__ import annotations

import fcntl
import http.client
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

STATE = Path(os.environ.get("AGENTFLY_TEST_DOCKER", "/var/lib/agentfly-test-docker"))
SOCKET = STATE / "docker.sock"
HOST = f"unix://{SOCKET}"
IMAGE = "agentfly-sandbox-test:local"
PYTHON = "/usr/bin/python3"
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data"}
PACKAGES = ("docker.io", "iptables", "busybox-static")
FALLBACKS = (
    ["--storage-driver", "overlay2"],
    ["--storage-driver", "vfs"],
    ["--storage-driver", "vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"],
)
READY_SECONDS = 60.0


def main() -> None:
    """Install, start, import; idempotent, and safe to call from several processes at once."""
    STATE.mkdir(parents=True, exist_ok=True)
    with open(STATE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install()
        if not answers():
            start()
        import_image()
    print(f"export DOCKER_HOST={HOST}")


def install() -> None:
    """The engine and busybox, from the distribution's packages."""
    if shutil.which("dockerd") and shutil.which("busybox"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", "-qq", *command], check=True, env=environment, stdout=sys.stderr)


def answers() -> bool:
    """Whether the private engine is there."""
    connection = http.client.HTTPConnection("localhost", timeout=5)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(5)
        connection.sock.connect(str(SOCKET))
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def start() -> None:
    """Start it in the background; it outlives this script."""
    for options in FALLBACKS:
        for stale in (STATE / "docker.pid", SOCKET):  # of an engine that was killed
            stale.unlink(missing_ok=True)
        run = STATE / f"exec.{time.time_ns()}"
        paths = ["--data-root", STATE / "data", "--exec-root", run, "--pidfile", STATE / "docker.pid"]
        with open(STATE / "dockerd.log", "ab") as log:
            process = subprocess.Popen(
                ["dockerd", "-H", HOST, *map(str, paths), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if answers():
                return
            time.sleep(0.1)
        if process.poll() is None:
            process.terminate()
            process.wait()
    sys.exit("no Docker engine could be started:\n" + (STATE / "dockerd.log").read_text()[-3000:])


def import_image() -> None:
    """Import the image, unless it is there."""
    docker = ["docker", "-H", HOST]
    if subprocess.run([*docker, "image", "inspect", IMAGE], capture_output=True).returncode == 0:
        return
    command = [*docker, "import", "--change", "ENV FROM_IMAGE=yes", "-", IMAGE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr) as process:
        assert process.stdin is not None
        with tarfile.open(fileobj=process.stdin, mode="w|", dereference=True) as archive:
            fill(archive)
        process.stdin.close()
    if process.returncode:
        sys.exit("the image could not be imported")


def fill(archive: tarfile.TarFile) -> None:
    """A root file system: busybox, the system's Python with its standard library, and the libraries they need."""
    for folder, mode in (("tmp", 0o1777), ("workspace", 0o1777), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)):
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        archive.addfile(entry)
    accounts = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/workspace:/bin/sh\n"
    add_bytes(archive, "etc/passwd", accounts.encode())
    add_bytes(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    busybox = shutil.which("busybox")
    assert busybox is not None
    add_file(archive, busybox, "bin/busybox")
    for name in subprocess.check_output([busybox, "--list"], text=True).split():
        if name != "busybox":
            add_link(archive, f"bin/{name}", "busybox")
    interpreter = os.path.realpath(PYTHON)
    add_file(archive, interpreter, interpreter[1:])
    add_link(archive, PYTHON[1:], os.path.basename(interpreter))
    library = subprocess.check_output([PYTHON, "-I", "-c", "import os; print(os.path.dirname(os.__file__))"], text=True)
    needed = set(libraries(interpreter))
    for file in standard_library(Path(library.strip())):
        add_file(archive, str(file), str(file)[1:])
        if file.suffix == ".so":
            needed |= set(libraries(str(file)))
    for name, path in sorted(needed):
        add_file(archive, path, name[1:] if name.startswith("/") else f"lib/{os.uname().machine}-linux-gnu/{name}")


def standard_library(folder: Path) -> Iterator[Path]:
    """Its files, without what no sandbox needs."""
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(n for n in inner if n not in LEFT_OUT and not n.startswith("config-"))
        yield from (Path(place, name) for name in sorted(names) if not name.endswith(".a"))


def libraries(file: str) -> Iterator[tuple[str, str]]:
    """(name, path) of the shared libraries that a file is linked with; the loader's name is its path."""
    for line in subprocess.run(["ldd", file], capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if "=>" in words and len(words) > 2 and words[2].startswith("/"):
            yield words[0], words[2]
        elif words and words[0].startswith("/"):
            yield words[0], words[0]


def add_file(archive: tarfile.TarFile, source: str, name: str) -> None:
    """A file with its content, owned by root."""
    entry = archive.gettarinfo(source, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = entry.linkname = ""
    entry.type = tarfile.REGTYPE
    entry.size = os.path.getsize(source)
    with open(source, "rb") as content:
        archive.addfile(entry, content)


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """A small file."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    """A symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


if __name__ == "__main__":
    main()
