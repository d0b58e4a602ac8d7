"""The command lines that start our own programs inside a sandbox, where this package is not installed."""

from __future__ import annotations

import functools
import json
from pathlib import Path

_PACKAGE = "agentfly_tools_code.inside"

_BOOTSTRAP = """\
import builtins, json, sys, types
sources, *sys.argv = json.loads(sys.argv[1]), *sys.argv[1:]
for name, source in sources.items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(__file__="<agentfly>", __builtins__=dict(vars(builtins)))
    exec(compile(source, "<agentfly>", "exec", dont_inherit=True), module.__dict__)
module.main()
"""
"""Gives each module builtins of its own: code that replaces those of its process does not reach ours."""

PROGRAMS = {
    "files": ("wire", "files"),
    "supervisor": ("wire", "output", "family", "cells", "children", "supervisor"),
    "candidate": ("wire", "values", "candidate"),
    "harness": ("wire", "values", "standins", "reading", "collecting", "cases", "harness"),
}
"""Program -> its modules in the order of their imports; the last one has ``main``."""


def command(python: str, program: str, *arguments: str) -> list[str]:
    """What runs a program under an interpreter inside. Only the environment's own packages can be imported there."""
    return [python, "-I", "-B", "-X", "utf8", "-c", _BOOTSTRAP, _bundle(program), *arguments]


@functools.cache
def _bundle(program: str) -> str:
    folder = Path(__file__).parent / "inside"
    return json.dumps({f"{_PACKAGE}.{name}": (folder / f"{name}.py").read_text() for name in PROGRAMS[program]})
