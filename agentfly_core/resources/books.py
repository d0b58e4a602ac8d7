"""Who may have what: the rules of granting as plain bookkeeping, without clock, lock or loop.

Tickets and idle shares together never exceed a capacity. A grant may use up idle shares of its own holder, who then
reuses or stops as many idle instances; those of other holders are called back first.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentfly_core.types import CoordinatorStatus, ResourceError, Ticket

TOTAL = "*"
"""The kind under which ``status`` reports the total over all kinds."""

Units = dict[str, int]
"""kind -> units."""


@dataclass(slots=True, eq=False)
class Request:
    """One pending wish, in the order of its number."""

    number: int
    kind: str
    owner: str
    amount: int = 1
    ttl: float = 60.0
    holder: str = ""
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Short:
    """Why a request must wait: so many units of its own kind, or of the total, are missing."""

    kind: str
    units: int


class Books:
    """Tickets, idle shares and queues.

    Args:
        capacity: kind -> units; a kind that is not listed is limited by ``total`` alone.
        total: units over all kinds; None sets no limit.
    """

    def __init__(self, capacity: Mapping[str, int] | None = None, total: int | None = None) -> None:
        self.capacity = dict(capacity or {})
        self.total = total
        if any(units < 0 for units in [*self.capacity.values(), total or 0]):
            raise ValueError(f"capacities must not be negative, got {self.capacity} and a total of {total}")
        self.tickets: dict[str, Ticket] = {}
        self.idle: dict[str, Units] = {}
        """holder -> its idle shares."""
        self._retiring: set[str] = set()
        """Tickets under which idle instances are being stopped."""
        self._granted: defaultdict[str, int] = defaultdict(int)
        self._shared: defaultdict[str, int] = defaultdict(int)
        """Tickets and idle shares together, by kind and under ``TOTAL``."""
        self._queues: dict[str, OrderedDict[int, Request]] = {}

    @property
    def waiting(self) -> bool:
        """Whether anyone waits."""
        return bool(self._queues)

    def check(self, kind: str, amount: int, ttl: float) -> None:
        """Refuse what can never be granted.

        Raises:
            ResourceError: more than the whole capacity is asked for.
        """
        if amount < 1 or not ttl > 0:
            raise ValueError(f"amount must be at least 1 and ttl positive, got {amount} and {ttl}")
        for what, limit in ((kind, self.capacity.get(kind)), ("all kinds together", self.total)):
            if limit is not None and amount > limit:
                raise ResourceError(f"{amount} of {kind} asked for, but the whole capacity of {what} is {limit}")

    def enqueue(self, request: Request) -> bool:
        """Put it behind all that came before; whether it is the first of its kind, and may be granted at once."""
        queue = self._queues.setdefault(request.kind, OrderedDict())
        queue[request.number] = request
        return len(queue) == 1

    def dequeue(self, request: Request) -> None:
        """Take it out, if it still waits."""
        queue = self._queues.get(request.kind)
        if queue is not None and queue.pop(request.number, None) is not None and not queue:
            del self._queues[request.kind]

    def next(self) -> tuple[Request, Units] | None:
        """The earliest request whose turn it is, with its ``claims``; or None."""
        for request in self._heads():
            claims = self.claims(request)
            if not isinstance(claims, Short):
                return request, claims
            if claims.kind == TOTAL:
                return None  # short of the total: whoever came later waits behind it
            # Short of its own kind only: later requests of other kinds take nothing from it.
        return None

    def claims(self, request: Request) -> Units | Short:
        """The idle shares of its holder that granting it now would use up, or what is missing."""
        own = self.idle.get(request.holder)
        kind, claimed = request.kind, dict[str, int]()
        if not own:
            return self._missing(request) or claimed
        if request.reuse and (mine := min(request.amount, own.get(kind, 0))):
            claimed[kind] = mine
        for pool, limit, kinds in ((kind, self.capacity.get(kind), [kind]), (TOTAL, self.total, [kind, *sorted(own)])):
            if limit is None:
                continue
            missing = self._shared[pool] + request.amount - sum(claimed.values()) - limit
            for each in kinds:
                more = max(0, min(missing, own.get(each, 0) - claimed.get(each, 0)))
                missing -= more
                if more:
                    claimed[each] = claimed.get(each, 0) + more
            if missing > 0:
                return Short(pool, missing)
        return claimed

    def _missing(self, request: Request) -> Short | None:
        """What is missing for a request whose holder has nothing idle."""
        for pool, limit in ((request.kind, self.capacity.get(request.kind)), (TOTAL, self.total)):
            if limit is not None and (missing := self._shared[pool] + request.amount - limit) > 0:
                return Short(pool, missing)
        return None

    def grant(self, request: Request, claims: Units, ticket_id: str, fence: int, now: float) -> Ticket:
        """Give a request that ``next`` named with its claims, or that waits for nothing, its ticket."""
        self.dequeue(request)
        for kind, units in claims.items():
            self._change_idle(request.holder, kind, -units)
        ticket = Ticket(
            ticket_id,
            request.kind,
            request.owner,
            request.amount,
            fence,
            now + request.ttl,
            request.holder,
            now,
            tuple(sorted(claims.items())) if claims else (),
        )
        self._add(ticket)
        return ticket

    def free(self, request: Request) -> bool:
        """Whether it takes nothing from anyone: neither from who waits nor from what is idle."""
        crowded = self._queues if self.total is not None else request.kind in self._queues
        return not crowded and self.claims(replace(request, reuse=False)) == {}

    def retire(self, request: Request, ticket_id: str, fence: int, now: float) -> Ticket | None:
        """Turn an idle share of the holder into a ticket, under which an instance is stopped; None if there is none."""
        if not self.idle.get(request.holder, {}).get(request.kind):
            return None
        self._change_idle(request.holder, request.kind, -1)
        owner, expires = request.owner, now + request.ttl
        ticket = Ticket(ticket_id, request.kind, owner, 1, fence, expires, request.holder, now)
        self._add(ticket)
        self._retiring.add(ticket_id)
        return ticket

    def renew(self, ticket: Ticket) -> None:
        """Replace a ticket by itself with a new deadline."""
        self.tickets[ticket.id] = ticket

    def drop(self, ticket_id: str, *, idle: bool = False) -> bool:
        """End a ticket, if there is one; with ``idle`` its share stays with its holder."""
        ticket = self.tickets.pop(ticket_id, None)
        if ticket is None:
            return False
        self._retiring.discard(ticket_id)
        self._granted[ticket.kind] -= ticket.amount
        self._share(ticket.kind, -ticket.amount)
        if idle:
            self._change_idle(ticket.holder, ticket.kind, ticket.amount)
        return True

    def undo(self, ticket: Ticket) -> None:
        """End a ticket that nobody took: the idle shares that it used up are its holder's again."""
        if self.drop(ticket.id):
            for kind, units in ticket.claimed:
                self._change_idle(ticket.holder, kind, units)

    def forget(self, holder: str) -> bool:
        """Free a holder's idle shares; whether it had any."""
        shares = dict(self.idle.get(holder, {}))
        for kind, units in shares.items():
            self._change_idle(holder, kind, -units)
        return bool(shares)

    def recalled(self) -> dict[str, Units]:
        """holder -> the idle shares that it must give up, as someone else waits for them."""
        recalled: dict[str, Units] = {}
        for request in self._heads():
            short = self.claims(request)
            if isinstance(short, Short):
                self._recall(recalled, request, short)
                if short.kind == TOTAL:
                    break
        return recalled

    def status(self) -> list[CoordinatorStatus]:
        """One row a kind, sorted, after the one of the total."""
        kinds = {*self.capacity, *self._queues, *(t.kind for t in self.tickets.values())}
        kinds |= {kind for shares in self.idle.values() for kind in shares}
        rows = [self._row(kind) for kind in sorted(kinds)]
        granted, waiting, idle = sum(r.granted for r in rows), sum(r.waiting for r in rows), sum(r.idle for r in rows)
        return [CoordinatorStatus(TOTAL, self.total, granted, waiting, idle=idle), *rows]

    def _row(self, kind: str) -> CoordinatorStatus:
        waiting = sum(request.amount for request in self._queues.get(kind, {}).values())
        tickets = tuple(t for t in self.tickets.values() if t.kind == kind)
        idle = self._shared[kind] - self._granted[kind]
        return CoordinatorStatus(kind, self.capacity.get(kind), self._granted[kind], waiting, tickets, idle)

    def _heads(self) -> list[Request]:
        """The first of each kind's queue, the earliest first."""
        if len(self._queues) < 2:
            return [next(iter(queue.values())) for queue in self._queues.values()]
        return sorted((next(iter(q.values())) for q in self._queues.values()), key=lambda r: r.number)

    def _recall(self, recalled: dict[str, Units], request: Request, short: Short) -> None:
        retiring = (self.tickets[id] for id in self._retiring)
        missing = short.units - sum(t.amount for t in retiring if short.kind in (t.kind, TOTAL))
        for holder, shares in self.idle.items():
            if holder == request.holder:
                continue
            for kind, units in shares.items():
                taken = recalled.setdefault(holder, {})
                more = min(missing, units - taken.get(kind, 0))
                if more > 0 and short.kind in (kind, TOTAL):
                    taken[kind] = taken.get(kind, 0) + more
                    missing -= more

    def _add(self, ticket: Ticket) -> None:
        self.tickets[ticket.id] = ticket
        self._granted[ticket.kind] += ticket.amount
        self._share(ticket.kind, ticket.amount)

    def _change_idle(self, holder: str, kind: str, units: int) -> None:
        shares = self.idle.setdefault(holder, {})
        shares[kind] = shares.get(kind, 0) + units
        if not shares[kind]:
            del shares[kind]
        if not shares:
            del self.idle[holder]
        self._share(kind, units)

    def _share(self, kind: str, units: int) -> None:
        self._shared[kind] += units
        self._shared[TOTAL] += units
