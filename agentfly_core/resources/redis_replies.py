"""Reading what the Redis server answers, and writing what it is asked."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from agentfly_core.resources.books import TOTAL
from agentfly_core.types import CoordinatorStatus, Ticket


def server_of(info: Any) -> tuple[str, int]:
    """Identity and least age in ms of the server; unknown ("", -1) where it does not tell."""
    if isinstance(info, Exception):
        return "", -1
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    if "uptime_in_seconds" not in facts:
        return facts.get("run_id", ""), -1
    return facts.get("run_id", ""), max(0, int(facts["uptime_in_seconds"]) - 1) * 1000  # it counts begun seconds


def ticket_of(reply: bytes | str) -> Ticket:
    raw = json.loads(reply)
    return Ticket(
        raw["id"],
        raw["kind"],
        raw["owner"],
        int(raw["amount"]),
        int(raw["fence"]),
        raw["expires"] / 1000,
        raw["holder"],
        raw["since"] / 1000,
        tuple(sorted((kind, int(units)) for kind, units in dict(raw["claimed"]).items())),
    )


def rows_of(limits: Any, shared: Any, tickets: list[Ticket], requests: Any) -> list[CoordinatorStatus]:
    waiting: Counter[str] = Counter()
    for request in requests:
        waiting[request["kind"]] += request["amount"]
    granted: Counter[str] = Counter()
    for ticket in tickets:
        granted[ticket.kind] += ticket.amount
    rows = []
    for kind in sorted({*limits, *shared, *waiting} - {TOTAL}):
        own = tuple(sorted((t for t in tickets if t.kind == kind), key=lambda t: t.fence))
        idle = int(shared.get(kind, 0)) - granted[kind]
        rows.append(CoordinatorStatus(kind, limits.get(kind), granted[kind], waiting[kind], own, idle))
    idle, total = sum(row.idle for row in rows), limits.get(TOTAL)
    return [CoordinatorStatus(TOTAL, total, sum(granted.values()), sum(waiting.values()), idle=idle), *rows]


def ms(seconds: float) -> int:
    """Milliseconds, at least one."""
    return max(1, round(seconds * 1000))
