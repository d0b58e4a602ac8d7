"""The supervisor's source as it is sent over, so that it needs no file inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "agentfly_core.resources.sandboxes.inside"
MODULES = ("frames", "seccomp", "landlock", "confine", "files", "mounts", "processes", "channels", "supervisor")
"""In an order in which each finds those that it imports."""

BOOTSTRAP = f"""
import json, os, sys, types
def receive(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
message = json.loads(receive(int.from_bytes(receive(8), "big")).decode())
package = sys.modules["{PACKAGE}"] = types.ModuleType("{PACKAGE}")
for name, source in message["modules"]:
    module = types.ModuleType(name)
    sys.modules["{PACKAGE}." + name] = module
    setattr(package, name, module)
    exec(compile(source, name, "exec"), module.__dict__)
package.supervisor.main(message["config"])
"""
"""What the interpreter inside starts with (``-I -S -c``): takes the modules and the configuration from the stream."""


def opening(config: Mapping[str, Any]) -> bytes:
    """The first bytes that the host sends."""
    message = json.dumps({"modules": _sources(), "config": config}).encode()
    return len(message).to_bytes(8, "big") + message


@cache
def _sources() -> list[tuple[str, str]]:
    folder = Path(__file__).parent / "inside"
    return [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
