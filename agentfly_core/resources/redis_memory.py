"""What a process holds by a Redis server's books, for a server that has forgotten them."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from agentfly_core.resources.redis_replies import ms, ticket_of
from agentfly_core.types import Ticket


@dataclass(slots=True, eq=False)
class _Held:
    """A ticket as the server gave it."""

    ticket: dict[str, Any]
    until: float
    """When it is over unless it is renewed, in seconds of ``time.monotonic()``."""


class RedisMemory:
    """Tickets, holders and idle shares of one coordinator. Touched on its loop's thread only."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._idle: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._holders: dict[str, float] = {}

    def hold(self, reply: bytes | str, asked: float | None = None) -> Ticket:
        """A ticket that the server gave or renewed, by a message sent at ``asked``."""
        raw, ticket = json.loads(reply), ticket_of(reply)
        for kind, units in () if ticket.id in self._held else ticket.claimed:
            self._idle[ticket.holder][kind] -= units
        begun = time.monotonic() if asked is None else asked
        self._held[ticket.id] = _Held(raw, begun + raw["ttl"] / 1000)
        return ticket

    def drop(self, ticket_id: str) -> None:
        """A ticket is released or lost."""
        self._held.pop(ticket_id, None)

    def undo(self, ticket_id: str) -> None:
        """A ticket was never taken: the idle shares that it used up are idle again."""
        if (held := self._held.pop(ticket_id, None)) is not None:
            self._idle[held.ticket["holder"]].update(held.ticket["claimed"])

    def park(self, ticket: Ticket) -> None:
        """A released ticket's share is idle."""
        self._idle[ticket.holder][ticket.kind] += ticket.amount

    def attended(self, holder: str, until: float) -> None:
        """A holder is known to the server until then."""
        self._holders[holder] = until

    def lapsed(self, holder: str) -> None:
        """Its idle shares are lost."""
        self._idle.pop(holder, None)

    def left(self, holder: str) -> None:
        """A holder is gone."""
        self._idle.pop(holder, None)
        self._holders.pop(holder, None)

    def lose_idle(self) -> set[str]:
        """The server has forgotten what is idle, and what was under way when it ended is not known: so have we.

        Returns:
            the holders, who must stop what is idle.
        """
        holders = set(self._holders)
        self._idle.clear()
        self._holders.clear()
        return holders

    def restoring(self) -> list[tuple[Any, ...]]:
        """(operation, arguments...) that tell a server of all tickets that have not run out yet."""
        now, operations = time.monotonic(), list[tuple[Any, ...]]()
        for held in self._held.values():
            if held.until > now:
                operations.append(("restore", json.dumps(held.ticket), ms(held.until - now)))
        return operations
