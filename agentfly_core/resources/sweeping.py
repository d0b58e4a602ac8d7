"""Ending what crashed runs left on this machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agentfly_core.resources.marks import crashed_runs, living_runs, swept
from agentfly_core.types import ResourceProvider

log = logging.getLogger("agentfly.resources")


async def sweep_crashed(providers: Mapping[str, ResourceProvider], *, kinds: frozenset[str] | None = None) -> int:
    """End what runs left whose process is gone, of these kinds or of all; how many there were.

    A provider that fails is logged, and asked again by the next sweep.
    """
    count = 0
    with crashed_runs() as crashed:
        for run, left in crashed.items():
            done = set()
            for kind in sorted(left & providers.keys() & (kinds if kinds is not None else left)):
                try:
                    count += await providers[kind].sweep(run)
                    done.add(kind)
                except Exception as error:
                    log.warning("what the crashed run %s left of kind %s stays: %s", run, kind, error)
            swept(run, frozenset(done))
    if count:
        log.warning("ended %d resources that crashed runs had left", count)
    return count


async def sweep_run(providers: Mapping[str, ResourceProvider], run_id: str) -> int:
    """End what one run left, of every kind that can be asked; how many there were."""
    count = 0
    for kind, provider in sorted(providers.items()):
        try:
            count += await provider.sweep(run_id)
        except Exception as error:
            log.warning("kind %s cannot be swept: %s", kind, error)
    return count


async def unknown_runs(providers: Mapping[str, ResourceProvider]) -> dict[str, list[str]]:
    """run -> kinds of which something exists here although no run of this user and machine is known by that id.

    Such a run may be another user's or, where containers share an engine, another host's.
    """
    with crashed_runs() as crashed:
        known = living_runs() | crashed.keys()
    found: dict[str, list[str]] = {}
    for kind, provider in sorted(providers.items()):
        try:
            there = await provider.runs()
        except Exception as error:
            log.info("kind %s cannot be asked what is left: %s", kind, error)
            continue
        for run in sorted(there - known):
            found.setdefault(run, []).append(kind)
    return found
