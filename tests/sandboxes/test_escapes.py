"""Hostile code in every kind of sandbox: blocked or bounded exactly as the sandbox's report says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

MIB = 1 << 20
MEMORY, PIDS, DISK = 256, 24, 16
TRY = """
import errno, json, os, sys
def attempt(action, *arguments):
    try:
        result = action(*arguments)
    except Exception as error:
        return type(error).__name__
    return result if isinstance(result, (int, str, list)) else "done"
"""


@pytest.fixture
def host():
    """A folder of the host that everybody may read and write, with a secret in it."""
    with tempfile.TemporaryDirectory(prefix="agentfly-host-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text("the secret")
        (folder / "secret").chmod(0o666)
        yield folder


def test_host_files_cannot_be_read(bench, python, host):
    code = (
        TRY
        + """
paths = [sys.argv[1] + "/secret", "/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/proc/1/root" + sys.argv[1]]
print(json.dumps([attempt(lambda: open(p).read()) for p in paths] + [attempt(os.listdir, sys.argv[1])]))
"""
    )
    secret, *others, listing = bench.run(lambda sandbox: python(sandbox, code, str(host)))
    if bench.report.filesystem == "open":
        assert (secret, listing) == ("the secret", ["secret"])
    else:
        expected = {"absent": "FileNotFoundError", "denied": "PermissionError"}[bench.report.filesystem]
        assert (secret, listing) == (expected, expected)
    assert set(others) <= {"FileNotFoundError", "PermissionError"}


def test_nothing_is_written_outside(bench, python, host):
    code = (
        TRY
        + """
places = [sys.argv[1], "/", "/etc", "/usr", "/usr/bin", "/var/tmp", "/home", "/opt", "/root", "/run", "/dev", "/proc"]
written = [p for p in places if attempt(lambda: open(p + "/" + sys.argv[2], "w").write("x")) == 1]
changed = attempt(lambda: open(sys.argv[1] + "/secret", "r+").write("changed"))
removed = attempt(os.unlink, sys.argv[1] + "/secret")
print(json.dumps([written, changed, removed]))
"""
    )
    name = f"agentfly-{uuid.uuid4().hex}"
    written, changed, removed = bench.run(lambda sandbox: python(sandbox, code, str(host), name))
    if bench.report.filesystem == "open":
        assert str(host) in written
        assert set(written) <= {str(host), "/var/tmp"}
        assert (changed, removed) == (7, "done")
        Path("/var/tmp", name).unlink(missing_ok=True)
    else:
        assert written == []
        assert [p.name for p in host.iterdir()] == ["secret"]
        assert (host / "secret").read_text() == "the secret"


def test_the_network_cannot_be_reached(bench, python, host):
    code = (
        TRY
        + """
import socket
folder, port, abstract = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def tcp(address): socket.create_connection((address, port), 5).close()
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
def unix(path, kind): s = socket.socket(socket.AF_UNIX, kind); s.connect(path); s.send(b"x")
def pair():  # a pair needs no socket() call, and datagrams can be addressed to somebody else
    s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b"x", folder + "/datagram")
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
def packet(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
found = {"tcp": attempt(tcp, "127.0.0.1"), "own": attempt(tcp, sys.argv[4]), "name": attempt(tcp, "example.com")}
found.update(stream=attempt(unix, folder + "/stream", socket.SOCK_STREAM), pair=attempt(pair), raw=attempt(raw))
found.update(abstract=attempt(unix, "\\0" + abstract, socket.SOCK_STREAM), packet=attempt(packet), udp=attempt(udp))
found["datagram"] = attempt(unix, folder + "/datagram", socket.SOCK_DGRAM)
print(json.dumps(found))
"""
    )
    abstract = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(contextlib.closing(socket.socket()))
        tcp.bind(("0.0.0.0", 0))
        stream = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        stream.bind(str(host / "stream"))
        hidden = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        hidden.bind("\0" + abstract)
        datagram = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
        datagram.bind(str(host / "datagram"))
        for path in ("stream", "datagram"):
            (host / path).chmod(0o777)
        for server in (tcp, stream, hidden):
            server.listen(8)
        arguments = [str(host), str(tcp.getsockname()[1]), abstract, _own_address()]
        found = bench.run(lambda sandbox: python(sandbox, code, *arguments))
        reached = {"stream": _pending(stream), "hidden": _pending(hidden), "tcp": _pending(tcp)}
        reached["datagram"] = _pending(datagram)
    assert found.pop("raw") != "done"  # without the capability, whatever else is open
    assert found.pop("packet") != "done"
    if bench.report.network == "open":
        assert found["tcp"] == found["stream"] == found["abstract"] == found["pair"] == "done"
        assert all(reached.values())
    else:
        assert "done" not in {k: v for k, v in found.items() if k != "udp"}.values(), found
        assert not any(reached.values()), reached


def test_a_fork_bomb_is_bounded_and_cleared_away(bench, python):
    code = """
import json, os, time
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError:
    pass
print(json.dumps(made))
"""

    async def scenario(sandbox):
        made = await python(sandbox, code)
        assert await bench.provider.reset(sandbox)
        again = await python(sandbox, code)
        return made, again

    made, again = bench.run(scenario)
    assert bench.report.pids != "none"
    assert PIDS // 2 <= made <= PIDS
    assert PIDS // 2 <= again <= PIDS


def test_a_memory_bomb_is_bounded(bench):
    code = f"""
import os, sys, time
held = []
def fill(mib):
    for _ in range(mib // 16):
        held.append(bytearray(os.urandom(1 << 16) * 256))
if sys.argv[1] == "one":
    fill({4 * MEMORY})
    print("had it all")
else:
    children = set()
    for _ in range(6):
        if (child := os.fork()) == 0:
            fill({MEMORY // 2})
            open(f"full.{{os.getpid()}}", "w").close()
            time.sleep(600)
        children.add(child)
    filling = children
    while filling:
        time.sleep(0.1)
        children -= {{child for child in children if os.waitpid(child, os.WNOHANG)[0]}}
        filling = {{child for child in children if not os.path.exists(f"full.{{child}}")}}
    time.sleep(0.5)
    children -= {{child for child in children if os.waitpid(child, os.WNOHANG)[0]}}
    print(len(children))
    for child in children:
        os.kill(child, 9)
"""

    async def scenario(sandbox):
        one = await sandbox.run([sandbox.python, "-I", "-c", code, "one"], timeout=120)
        many = await sandbox.run([sandbox.python, "-I", "-c", code, "many"], timeout=120)
        return one, many, await bench.provider.health(sandbox)

    one, many, healthy = bench.run(scenario)
    assert bench.report.memory != "none"
    assert b"had it all" not in one.stdout
    assert one.exit_code == -9 or b"MemoryError" in one.stderr
    if bench.report.memory == "cgroup":
        assert int(many.stdout or 0) <= 2, many  # so many at once have half of it each; the kernel killed the others
    assert healthy  # the supervisor is not what the kernel kills


def test_the_disk_cannot_be_filled(bench, python):
    code = f"""
import json, os
def fill(folder):
    total = largest = 0
    for number in range(12):
        try:
            with open(os.path.join(folder, f"big{{number}}"), "wb", buffering=0) as file:
                size = 0
                try:
                    for _ in range(24):
                        size += file.write(b"x" * {MIB})
                finally:
                    total, largest = total + size, max(largest, size)
        except OSError:
            pass
    return [total / {MIB}, largest / {MIB}]
print(json.dumps([fill("."), fill(os.environ["TMPDIR"])]))
"""
    for total, largest in bench.run(lambda sandbox: python(sandbox, code)):
        assert 0 < largest <= DISK
        if bench.report.disk == "sized":
            assert total <= DISK
        else:
            assert bench.report.disk == "per file"


def test_links_and_dots_lead_nowhere(bench, host):
    async def scenario(sandbox):
        up = "../" * 12 + str(host)[1:]
        command = f"ln -s {host} link; ln -s {host}/secret file; ln -s /proc/1/root root; ln -s {up} up"
        assert (await sandbox.run(["/bin/sh", "-c", command], timeout=60)).exit_code == 0
        found = []
        for path in ("link/secret", "file", "up/secret", f"{up}/secret", f"root{host}/secret"):
            try:
                found.append(await sandbox.read_file(path, max_bytes=100))
            except OSError:
                found.append(b"")
        for path in ("link/new", "file", f"{up}/new2"):
            with contextlib.suppress(OSError):
                await sandbox.write_file(path, b"changed")
        try:
            found.append(await sandbox.list_files("link"))
        except OSError:
            found.append([])
        return found

    *contents, listing = bench.run(scenario)
    if bench.report.filesystem == "open":
        assert contents[:2] == [b"the secret"] * 2
    else:
        assert not any(contents)
        assert "secret" not in [entry.path for entry in listing]
        assert [p.name for p in host.iterdir()] == ["secret"]
        assert (host / "secret").read_text() == "the secret"


def test_the_supervisor_survives_its_commands(bench, python):
    code = (
        TRY
        + """
import signal
parent = os.getppid()
signals = [attempt(os.kill, parent, s) for s in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL, signal.SIGUSR1)]
files = [attempt(lambda p=p: open(f"/proc/{parent}/{p}", "r+b")) for p in ("mem", "fd/0", "fd/1")]
reads = [attempt(lambda p=p: open(f"/proc/{parent}/{p}", "rb").read()) for p in ("environ", "mem")]
print(json.dumps([signals, files, reads]), flush=True)
"""
    )

    async def scenario(sandbox):
        found = await python(sandbox, code)
        await sandbox.run(["/bin/sh", "-c", "kill -9 -1"], timeout=60)
        return found, await sandbox.run(["echo", "alive"], timeout=60)

    (signals, files, reads), after = bench.run(scenario)
    assert after.stdout == b"alive\n"
    assert "done" not in files + reads
    # Process 1 of a namespace takes no signals from below, so that sending one may succeed without any effect.
    assert "done" not in signals or bench.report.processes == "hidden"


def test_processes_of_the_host_cannot_be_signalled(bench, python):
    code = (
        TRY
        + """
import signal
pid = int(sys.argv[1])
seen = sys.argv[2] in attempt(lambda: open(f"/proc/{pid}/cmdline").read())
print(json.dumps([seen, attempt(os.kill, pid, signal.SIGKILL), attempt(os.kill, -1, 0)]))
"""
    )
    token = uuid.uuid4().hex
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", token])
    try:
        seen, killed, _ = bench.run(lambda sandbox: python(sandbox, code, str(victim.pid), token))
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
    assert seen is (bench.report.processes == "seen")
    assert killed in ("PermissionError", "ProcessLookupError")


def test_processes_that_slip_away_end_with_the_sandbox(bench):
    token = f"agentfly-{uuid.uuid4().hex}"
    code = f"""
import os, signal, sys
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(s, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "{token}"])
        os._exit(0)
"""

    async def main():
        async with bench.sandbox() as sandbox:
            for _ in range(2):
                done = await sandbox.run([sandbox.python, "-I", "-c", code], timeout=60)
                assert done.exit_code == 0
                assert await _settles(lambda: _count(token) == 3)
                assert await bench.provider.reset(sandbox)
                assert _count(token) == 0
            await sandbox.run([sandbox.python, "-I", "-c", code], timeout=60)
            assert await _settles(lambda: _count(token) == 3)
        return _count(token)

    assert asyncio.run(main()) == 0


STATE = (
    TRY
    + """
import ctypes, mmap
word, folder = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
places = [".", os.environ["TMPDIR"], "/tmp", "/dev/shm", "/var/tmp", "/run", "/dev/mqueue"]
"""
)
LEAVE = (
    STATE
    + """
left = [attempt(lambda: open(os.path.join(p, word), "w").write("x")) for p in places]
memory = libc.shmget(int(word[:6], 16), 4096, 0o1666)
queue = libc.msgget(int(word[:6], 16), 0o1666)
print(json.dumps([left, memory, queue]))
"""
)
LOOK = (
    STATE
    + """
found = [p for p in places if os.path.exists(os.path.join(p, word))]
found += ["memory"] if libc.shmget(int(word[:6], 16), 4096, 0o666) >= 0 else []
found += ["queue"] if libc.msgget(int(word[:6], 16), 0o666) >= 0 else []
found += [folder] if isinstance(attempt(os.listdir, folder), list) and folder != os.getcwd() else []
print(json.dumps(found))
"""
)


def test_other_chains_leave_no_trace(bench, python):
    word = uuid.uuid4().hex

    async def main():
        async with bench.sandbox() as first, bench.sandbox() as second:
            left, memory, queue = await python(first, LEAVE, word, "")
            beside = await python(second, LOOK, word, first.workspace)
            clean = await bench.provider.reset(first)
            after = await python(first, LOOK, word, second.workspace) if clean else []
        return left, memory, queue, beside, clean, after

    left, memory, queue, beside, clean, after = asyncio.run(main())
    assert left[:2] == [1, 1]
    if bench.report.filesystem == "open":
        assert set(beside) <= {"/tmp", "/dev/shm", "/var/tmp", "memory", "queue"}
        assert not clean or not {"memory", "queue"} & set(after)
        _remove_shared(word, memory, queue)
    else:
        assert beside == []
        assert clean
        assert after == []


def test_no_privilege_is_to_be_had(bench, python):
    code = (
        TRY
        + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return 0 if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
numbers = {"unshare": (272, 0x10000000), "ptrace": (101, 0), "bpf": (321, 0), "keyctl": (250, 0, -3, 1)}
numbers.update(io_uring=(425, 8, 0), mount=(165, 0, 0, 0, 0, 0), userfaultfd=(323, 0), perf=(298, 0, 0, 0, 0, 0))
numbers.update(clone=(56, 0x10000000 | 17, 0, 0, 0, 0), setns=(308, 0, 0))
numbers.update(process_vm_readv=(310, os.getppid(), 0, 0, 0, 0, 0))
print(json.dumps({
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "root": attempt(os.setuid, 0),
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "filtered": status["Seccomp"].strip(),
    "calls": {name: call(*arguments) for name, arguments in numbers.items()} if sys.argv[1] == "calls" else {},
}))
"""
    )
    strong = bench.kind != "rlimits"
    found = bench.run(lambda sandbox: python(sandbox, code, "calls" if strong else ""))
    assert 0 not in found["ids"]
    assert found["root"] == "PermissionError"
    assert found["capabilities"] == [0, 0, 0, 0]
    if strong:
        assert found["no_new_privileges"] == "1"
        assert found["filtered"] == "2"
        assert set(found["calls"].values()) == {1}, found["calls"]  # EPERM


def test_the_cpu_is_shared_out(bench, python):
    code = """
import json, os, time
for _ in range(3):
    if os.fork() == 0:
        end = time.monotonic() + 3
        while time.monotonic() < end: pass
        os._exit(0)
begin = time.monotonic()
for _ in range(3):
    os.wait()
used = os.times()
share = (used.children_user + used.children_system) / (time.monotonic() - begin)
print(json.dumps([share, len(os.sched_getaffinity(0))]))
"""
    share, cores = bench.run(lambda sandbox: python(sandbox, code), cpu=0.5)
    if bench.report.cpu == "cgroup":
        assert share < 0.75
    else:
        assert bench.report.cpu == "affinity"
        assert cores == 1


def _own_address() -> str:
    """The address under which this machine is known to others, without a packet being sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def _pending(server: socket.socket) -> bool:
    """Whether somebody has connected or sent."""
    server.setblocking(False)
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(10)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _count(token: str) -> int:
    """Living processes of this machine with the token among their arguments."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += token.encode() in (folder / "cmdline").read_bytes().split(b"\0")
    return found


async def _settles(condition) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _remove_shared(word: str, memory: int, queue: int) -> None:
    """What hostile code has left where nothing is fenced off."""
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        Path(folder, word).unlink(missing_ok=True)
    for option, number in (("-m", memory), ("-q", queue)):
        if number >= 0:
            subprocess.run(["ipcrm", option, str(number)], check=False)
