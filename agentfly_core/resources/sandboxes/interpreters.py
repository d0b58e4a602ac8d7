"""Which Python runs in a sandboxed process."""

from __future__ import annotations

import os
import sys
from functools import cache

SYSTEM = ("/usr/bin/python3", "/usr/local/bin/python3")


def own() -> str:
    """The interpreter that runs this, outside any virtual environment."""
    return os.path.realpath(sys.executable)


@cache
def paths() -> tuple[str, ...]:
    """What of this interpreter and its packages lies outside /usr, as folders and files to be shown read-only.

    Of a virtual environment only the packages are shown: its folder may hold more, settings with passwords included.
    """
    found = [sys.base_prefix, sys.base_exec_prefix, os.path.dirname(own())]
    if sys.prefix != sys.base_prefix:
        names = ("pyvenv.cfg", "bin", "lib", "lib64")
        found += [path for name in names if os.path.exists(path := os.path.join(sys.prefix, name))]
    return tuple(_outermost(found))


def candidates() -> list[str]:
    """Interpreters for commands, best first: this one with its packages, then the system's."""
    return [sys.executable, *(path for path in SYSTEM if os.access(path, os.X_OK))]


def _outermost(found: list[str]) -> list[str]:
    """Without what lies below /usr or below another of them."""
    kept: list[str] = []
    for path in sorted(set(found), key=len):
        if not any(path == top or path.startswith(top + "/") for top in ["/usr", *kept]):
            kept.append(path)
    return kept
