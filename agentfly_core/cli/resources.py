"""``agentfly resources``: what is leased, and ending what crashed runs left."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import click

from agentfly_core.cli.output import json_option, load_plugins, root_option, show, show_json

SILENCE = 60.0
"""Seconds without a sign after which a run on another host counts as gone."""


@click.group()
def command() -> None:
    """Show what is leased, and end what crashed runs left."""


@command.command()
@root_option
@click.option("--coordinator", metavar="URL", help="Ask this Redis server; by default that of AGENTFLY_REDIS_URL.")
@click.option("--pool", default="default", show_default=True, help="With Redis: of which pool.")
@json_option
def status(root: str, coordinator: str | None, pool: str, as_json: bool) -> None:
    """What is leased, by whom and since when; how much is idle and awaited.

    Of a Redis coordinator if one is named, and of the runs in ROOT that are going on.
    """
    from agentfly_core.recipes.resources import URL_VARIABLE

    url = coordinator or os.environ.get(URL_VARIABLE)
    shared = asyncio.run(_pool(url, pool)) if url else None
    runs = [_run(path) for path in sorted(Path(root).glob("*/resources.json"))]
    if as_json:
        show_json({"coordinator": shared, "runs": runs})
        return
    kinds, leases = _tables(shared, runs)
    if not kinds:
        click.echo(f"nothing is leased (looked in {root}/{f' and at the pool {pool!r}' if url else ''})")
        return
    show(kinds, as_json=False)
    if leases:
        click.echo()
        show(leases, as_json=False)


@command.command()
@click.option("--run", "run_id", metavar="ID", help="End what this run left, whoever's and wherever it was.")
@json_option
def sweep(run_id: str | None, as_json: bool) -> None:
    """End what runs left behind whose process is gone.

    What belongs to no run that is known on this machine is named, but only --run ends it: it may be at work for
    another user or host.
    """
    from agentfly_core.recipes.resources import build_providers

    result = asyncio.run(_sweep(build_providers(load_plugins()), run_id))
    if as_json:
        show_json(result)
        return
    click.echo(f"{result['ended']} ended")
    for run, kinds in result["unknown"].items():
        click.echo(
            f"{', '.join(kinds)} of the unknown run {run}: it may be at work for another user or host. If you know "
            f"that it is not, end it with: agentfly resources sweep --run {run}"
        )


async def _sweep(providers: dict[str, Any], run_id: str | None) -> dict[str, Any]:
    from agentfly_core.resources.sweeping import sweep_crashed, sweep_run, unknown_runs

    ended = await sweep_crashed(providers) if run_id is None else await sweep_run(providers, run_id)
    return {"ended": ended, "unknown": await unknown_runs(providers)}


async def _pool(url: str, pool: str) -> dict[str, Any]:
    """What a Redis coordinator counts, as plain data."""
    from agentfly_core.recipes.resources import coordinator_url
    from agentfly_core.resources import RedisCoordinator
    from agentfly_core.resources.redis_link import shown

    coordinator = RedisCoordinator(coordinator_url(url), name=pool)
    try:
        rows = await coordinator.status()
    finally:
        await coordinator.close()
    return {
        "url": shown(url),
        "pool": pool,
        "kinds": {
            row.kind: {"capacity": row.capacity, "leased": row.granted, "idle": row.idle, "waiting": row.waiting}
            for row in rows
        },
        "leases": [
            {"kind": t.kind, "owner": t.owner, "holder": t.holder, "since": t.since, "expires": t.expires_at}
            for row in rows
            for t in row.tickets
        ],
    }


def _run(path: Path) -> dict[str, Any]:
    """What a run wrote last, and whether it still lives."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {"folder": path.parent.name, "stale": _stale(found), **found}
    except (ValueError, KeyError, TypeError, OSError) as error:
        return {
            "folder": path.parent.name,
            "stale": True,
            "kinds": {},
            "leases": [],
            "waiting": [],
            "error": str(error),
        }


def _stale(status: dict[str, Any]) -> bool:
    import platform

    from agentfly_core.resources.marks import living_runs

    if status["host"] == platform.node():
        return status["run"] not in living_runs()
    return bool(time.time() - status["updated"] > SILENCE)


def _tables(shared: dict[str, Any] | None, runs: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """One row a kind and place, and one a lease."""
    kinds, leases = [], []
    if shared is not None:
        where = f"pool {shared['pool']}"
        for kind, n in shared["kinds"].items():
            kinds.append({"where": where, "kind": kind, **n, "failures": None})
        leases += [{"where": where, **_lease(lease)} for lease in shared["leases"]]
    for run in runs:
        where = f"{run['folder']} (stale)" if run["stale"] else run["folder"]
        for kind, n in run["kinds"].items():
            numbers = {"capacity": None, "leased": n["leased"], "idle": n["idle"], "waiting": n["waiting"]}
            kinds.append({"where": where, "kind": kind, **numbers, "failures": sum(n["failures"].values())})
        leases += [{"where": where, **_lease(lease)} for lease in run["leases"]]
        leases += [{"where": where, **_lease({**waiter, "state": "waiting"})} for waiter in run["waiting"]]
    return kinds, leases


def _lease(lease: dict[str, Any]) -> dict[str, Any]:
    seconds = max(0.0, time.time() - lease["since"])
    since = time.strftime("%H:%M:%S", time.localtime(lease["since"]))
    state = lease.get("state", "held")
    return {
        "kind": lease["kind"],
        "owner": lease["owner"],
        "state": state,
        "since": since,
        "seconds": round(seconds, 1),
    }
