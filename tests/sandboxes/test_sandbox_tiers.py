"""How the kind of sandboxed process is chosen, and what it is built from."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agentfly_core.resources.sandboxes import ProcessProvider, bubblewrap, cgroups, confined, interpreters, uids
from agentfly_core.resources.sandboxes.inside import frames, seccomp
from agentfly_core.resources.sandboxes.plan import Limits
from agentfly_core.types import Isolation, ResourceError, ResourceProvider, ResourceSpec, UsageError

root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def test_without_bubblewrap_the_next_tier_is_taken_and_the_reason_is_kept(monkeypatch):
    monkeypatch.setattr(bubblewrap, "executable", lambda: None)
    provider = ProcessProvider()
    assert provider.report().mechanism in ("landlock+seccomp", "rlimits")
    assert dict(provider._choice.failures)["bubblewrap"].startswith("there is no bwrap")


def test_a_bubblewrap_that_fences_nothing_off_is_found_out(monkeypatch, tmp_path):
    """It runs everything it is given, outside any namespace: only a trial tells."""
    liar = tmp_path / "bwrap"
    liar.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nmkdir -p /workspace\nexec "$@"\n')
    liar.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "executable", lambda: str(liar))
    monkeypatch.setattr(bubblewrap, "WORKSPACE", "/tmp")
    provider = ProcessProvider()
    report = provider.report()
    assert report.mechanism != "bubblewrap"
    assert "it does not hold" in dict(provider._choice.failures)["bubblewrap"]


def test_what_only_limits_accidents_refuses_a_demand_for_more_and_says_why(monkeypatch):
    monkeypatch.setattr(bubblewrap, "executable", lambda: None)
    monkeypatch.setattr(confined, "supported", lambda: False)
    provider = ProcessProvider()
    assert provider.isolation == Isolation.PROCESS
    with pytest.raises(ResourceError, match=r"SANDBOX is demanded.*only PROCESS \(rlimits\).*install the package bubb"):
        asyncio.run(provider.start(ResourceSpec("process", min_isolation=Isolation.SANDBOX), run_id="x"))


def test_a_tier_that_was_asked_for_and_does_not_work_is_an_error(monkeypatch):
    monkeypatch.setattr(bubblewrap, "executable", lambda: None)
    with pytest.raises(ResourceError, match="there is no bwrap: install"):
        ProcessProvider(tier="bubblewrap").report()
    with pytest.raises(UsageError, match="unknown tier 'chroot'; known: bubblewrap"):
        ProcessProvider(tier="chroot")


@pytest.mark.parametrize("field", [{"image": "x"}, {"target": "x", "command": ("x",)}])
def test_fields_that_make_no_sense_are_refused(field):
    with pytest.raises(ResourceError, match="cannot honour"):
        asyncio.run(ProcessProvider().start(ResourceSpec("process", **field), run_id="x"))


def test_providers_are_built_in_and_are_what_the_types_promise():
    from agentfly_core.plugins import Plugins

    registry = Plugins.load(warn=False).registry("resources")
    for kind in ("process", "docker"):
        assert isinstance(registry.get(kind)(), ResourceProvider)


@root_only
def test_user_ids_are_private_while_they_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(uids, "LOCKS", tmp_path)
    monkeypatch.setattr(uids, "COUNT", 3)
    held = [uids.PrivateUid() for _ in range(3)]
    assert sorted(u.number for u in held) == [uids.FIRST, uids.FIRST + 1, uids.FIRST + 2]
    with pytest.raises(ResourceError, match="all 3 user ids"):
        uids.PrivateUid()
    freed = held.pop()
    freed.release()
    again = uids.PrivateUid()
    assert again.number == freed.number
    for uid in (*held, again):
        uid.release()


@root_only
def test_processes_of_a_user_are_killed_to_the_last():
    uid = uids.FIRST + uids.COUNT + os.getpid()
    script = "import os\nos.setsid()\nfor _ in range(3): os.fork()\nprint(flush=True)\nimport time; time.sleep(600)"
    process = subprocess.Popen(["/usr/bin/python3", "-I", "-c", script], user=uid, stdout=subprocess.PIPE, cwd="/")
    try:
        for _ in range(8):
            assert process.stdout.readline() == b"\n"
        assert len(uids.processes_of(uid)) == 8
        assert uids.kill_user(uid) == 8
        assert uids.processes_of(uid) == []
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_control_group_takes_the_limits():
    if not cgroups.available():
        pytest.skip("control groups cannot be made here")
    name = f"limits-{os.getpid()}~"  # no other sandbox of this process is named so
    group = cgroups.ControlGroup(f"{name}1", Limits(memory=100, pids=10, cpu=0.25, disk=1))
    try:
        assert cgroups.leftovers(name)
        values = {f.name: f.read_text().split() for folder in group.folders for f in folder.iterdir() if _limit(f.name)}
        size = values.get("memory.max") or values["memory.limit_in_bytes"]
        assert size == [str(100 << 20)]
        assert values["pids.max"] == [str(10 + cgroups.OVERHEAD)]
        assert (values.get("cpu.max") or values["cpu.cfs_quota_us"])[0] == "25000"
    finally:
        group.remove()
    assert not cgroups.leftovers(name)


def _limit(name: str) -> bool:
    return name in ("memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us")


def test_frames_survive_any_cut():
    sent = [(frames.START, 1, b"{}"), (frames.OUTPUT, 7, b""), (frames.INPUT, 2**32 - 1, bytes(range(256)) * 9)]
    stream = b"".join(frames.frame(*each) for each in sent)
    for size in (1, 2, 5, 9, 1000, len(stream)):
        parser, found = frames.Parser(), []
        for start in range(0, len(stream), size):
            found += parser.feed(stream[start : start + size])
        assert found == sent
    with pytest.raises(ValueError, match="a frame of"):
        frames.Parser().feed(b"\xff" * 9)


def test_the_filter_decides_as_written():
    """The program run by an interpreter of its own, on calls whose fate is known."""
    for network in (True, False):
        program = seccomp.program(network=network)
        assert all(yes <= 255 and no <= 255 for _, yes, no, _ in program)
        decide = lambda number, *arguments, p=program: _interpret(p, number, arguments)  # noqa: E731
        assert decide(0) == "allow"  # read
        assert decide(57) == "allow"  # fork
        assert decide(101) == "refuse"  # ptrace
        assert decide(56, 17) == "allow"  # clone as fork does it
        assert decide(56, 0x3D0F00) == "allow"  # clone as threads do it
        assert decide(56, 0x10000000 | 17) == "refuse"  # with a user namespace
        assert decide(435) == "missing"  # clone3
        assert decide(0x40000000) == "kill"  # x32
        assert decide(41, 1) == ("allow" if network else "refuse")  # socket
        assert decide(53, 1, 1 | 0o2000000) == "allow"  # a pair of streams, closed on exec
        assert decide(53, 1, 2) == ("allow" if network else "refuse")  # of datagrams
        assert decide(53, 2, 1) == ("allow" if network else "refuse")
        assert _interpret(program, 0, (), architecture=0x40000003) == "kill"  # 32 bit


def _interpret(program, number, arguments, architecture=seccomp.X86_64):
    """Classic BPF as the kernel's documentation describes it."""
    data = {0: number, 4: architecture, **{16 + 8 * i: a & 0xFFFFFFFF for i, a in enumerate(arguments)}}
    value = position = 0
    while True:
        code, yes, no, k = program[position]
        position += 1
        if code == 0x06:
            return {0x7FFF0000: "allow", 0x80000000: "kill", 0x00050001: "refuse", 0x00050026: "missing"}[k]
        if code == 0x20:
            value = data.get(k, 0)
        elif code == 0x54:
            value &= k
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            position += yes if holds else no


UNPRIVILEGED = textwrap.dedent("""
    import asyncio, json, os, sys
    from agentfly_core.resources.sandboxes import ProcessProvider
    from agentfly_core.types import ResourceError, ResourceSpec

    BOMB = '''
    import os, time
    made = 0
    try:
        while made < 60:
            if os.fork() == 0:
                os.setsid(); time.sleep(600); os._exit(0)
            made += 1
    except OSError:
        pass
    print(made)
    try:
        os.kill(os.getppid(), 9)
    except OSError:
        pass
    '''

    async def main(tier, token):
        provider = ProcessProvider(tier=tier, pids=24, memory=256, disk=16)
        try:
            report = await asyncio.to_thread(provider.report)
        except ResourceError as error:
            return {"missing": str(error)}
        sandbox = await provider.start(ResourceSpec("process"), run_id=token)
        try:
            made = (await sandbox.run([sandbox.python, "-I", "-c", BOMB, token], timeout=60)).stdout.decode().strip()
            alive = (await sandbox.run(["echo", "alive"], timeout=60)).stdout.decode().strip()
            clean = await provider.reset(sandbox)
        except ResourceError as error:
            made, alive, clean = "0", str(error), False
        await provider.stop(sandbox)
        left = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                left += token.encode() in open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")[3:]
            except OSError:
                pass
        fields = {name: getattr(report, name) for name in report.__slots__}
        return {**fields, "made": int(made), "alive": alive, "clean": clean, "left": left - 1}

    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2]))))
""")


@root_only
@pytest.mark.parametrize("tier", ["bubblewrap", "landlock+seccomp", "rlimits"])
def test_they_work_for_a_user_without_privileges(tier, tmp_path):
    python, environment = _python_for_others()
    token = f"user-{os.getpid()}-{tier}"
    done = subprocess.run(
        [python, "-c", UNPRIVILEGED, tier, token],
        user=65533,
        group=65533,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["memory"], found["pids"], found["cpu"]) == ("per process", "per user", "affinity")
    assert found["left"] == 0
    if found["processes"] == "seen":  # as reported: its commands may kill its supervisor, and it is replaced
        assert tier == "rlimits" or not found["clean"]
    else:
        assert 12 <= found["made"] <= 24
        assert (found["alive"], found["clean"]) == ("alive", True)


def _python_for_others() -> tuple[str, dict[str, str]]:
    """An interpreter that any user may run, and what it needs to find the packages of this one."""
    paths = [str(Path(__file__).parents[2]), *(p for p in sys.path if p.endswith("site-packages"))]
    for python, environment in (
        (sys.executable, {}),
        *((p, {"PYTHONPATH": ":".join(paths)}) for p in interpreters.SYSTEM),
    ):
        try:
            command = [python, "-c", "import agentfly_core.resources.sandboxes"]
            subprocess.run(command, user=65533, env=environment, check=True, capture_output=True, cwd="/", timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        return python, environment
    pytest.skip("no interpreter that another user may run can import this package")
