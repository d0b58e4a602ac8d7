"""A game's problem as the planner's library takes it. Slow to make (0.3 s), so it is kept: in memory and on disk."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
"""Raised when what is kept on disk changes."""


@dataclass(frozen=True)
class Translation:
    """What a game needs of its PDDL.

    Attributes:
        sas: the planning task in the library's own format.
        types: (name, names of its supertypes).
        actions: by name, the (parameter, type) of each.
        objects: type by name.
        facts: those that hold at the start, as [predicate, argument ...].
    """

    sas: str
    types: list[tuple[str, list[str]]]
    actions: dict[str, list[tuple[str, str]]]
    objects: dict[str, str]
    facts: list[list[str]]


@functools.lru_cache(maxsize=4)
def translate(domain: str, problem: str) -> Translation:
    """The translation, from disk if any process of this user has made it before.

    Processes that want the same one at the same time, as the chains of a group do, wait for the first.
    """
    folder = cache_folder()
    if folder is None:
        return _translate(domain, problem)
    key = hashlib.blake2b(f"{FORMAT}\0{domain}\0{problem}".encode(), digest_size=16).hexdigest()
    path = folder / f"{key}.json.gz"
    with _locked(folder / f"{key[:2]}.lock"):
        kept = _read(path)
        if kept is None:
            kept = _translate(domain, problem)
            _write(path, kept)
    return kept


def cache_folder() -> Path | None:
    """Where translations are kept: ``AGENTFLY_ALFWORLD_CACHE``, or in the user's cache. None if that is ``off`` or
    cannot be written."""
    given = os.environ.get("AGENTFLY_ALFWORLD_CACHE")
    if given == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(given) if given else Path(base) / "agentfly" / "alfworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _translate(domain: str, problem: str) -> Translation:
    import fast_downward

    argv = sys.argv  # the translator puts its own options there
    try:
        task, sas = fast_downward.pddl2sas(domain, problem)
    finally:
        sys.argv = argv
    return Translation(
        sas=sas,
        types=[(t.name, list(t.supertype_names)) for t in task.types],
        actions={a.name: [(p.name.strip("?"), p.type_name) for p in a.parameters] for a in task.actions},
        objects={o.name: o.type_name for o in task.objects},
        facts=[fact for atom in task.init if (fact := _fact(atom)) is not None],
    )


def _fact(atom: Any) -> list[str] | None:
    """An initial atom as the engine keeps it; equality and costs are left out."""
    predicate = getattr(atom, "predicate", None)
    return None if predicate is None or predicate == "=" else [predicate, *atom.args]


def _read(path: Path) -> Translation | None:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            kept = json.load(file)
        return Translation(
            sas=kept["sas"],
            types=[(name, supertypes) for name, supertypes in kept["types"]],
            actions={name: [(p, t) for p, t in parameters] for name, parameters in kept["actions"].items()},
            objects=kept["objects"],
            facts=kept["facts"],
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None  # absent or damaged: made anew


def _write(path: Path, translation: Translation) -> None:
    """All or nothing. A full disk costs time, not the episode."""
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(descriptor, "wb") as file, gzip.open(file, "wt", compresslevel=1, encoding="utf-8") as text:
                json.dump(asdict(translation), text)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; it is freed with the process. Where locks are not to be had, go on without."""
    import fcntl

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context(open(path, "w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
