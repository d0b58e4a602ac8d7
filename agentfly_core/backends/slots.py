"""Which chain has which row of the cache: running, kept for its next turn, or free."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from agentfly_core.backends.cache import LENGTH_STEP, SlotCache
from agentfly_core.backends.sampling import UniformStream
from agentfly_core.backends.stopping import StopTexts
from agentfly_core.types import Generation, GenerationRequest

ChainKey: TypeAlias = "tuple[str, int, int]"


@dataclass(eq=False, slots=True)
class Row:
    """A request in the batch, and afterwards what the cache still holds of it.

    Attributes:
        stops: the texts that end it; None for none.
        ids: prompt and sampled ids.
        cached: how many of them the cache holds; after each step all but the last.
        live: still sampling.
        abandoned: set by the caller's side when it no longer waits.
    """

    request: GenerationRequest
    future: asyncio.Future[Generation]
    uniforms: UniformStream
    stops: StopTexts | None = None
    ids: list[int] = field(init=False)
    logprobs: list[float] = field(default_factory=list)
    cached: int = 0
    live: bool = True
    abandoned: bool = False
    slot: int = -1

    def __post_init__(self) -> None:
        self.ids = list(self.request.prompt_ids)

    @property
    def ended(self) -> bool:
        """Whether its last id is a stop token or completes a stop text."""
        if self.ids[-1] in self.request.sampling.stop_token_ids:
            return True
        return self.stops is not None and self.stops.appear(self.ids, len(self.request.prompt_ids))

    @property
    def most(self) -> int:
        """Tokens it may come to."""
        return len(self.request.prompt_ids) + self.request.sampling.max_tokens


class Slots:
    """The rows of a cache and their owners.

    Live rows are kept near the front, because a decode step runs over all rows up to the last live one. The rows
    between them that are not live (kept or free) are worked on for nothing, so ``compact`` swaps them out once they
    are many; swapping at once would copy rows that are often back a moment later for their next turn.

    Args:
        most_rows: live and kept rows together.
        most_tokens: bound of rows times length, for the memory.
    """

    def __init__(self, cache: SlotCache, most_rows: int, most_tokens: int) -> None:
        self.cache = cache
        self._most_rows = most_rows
        self._most_tokens = most_tokens
        self._owners: list[Row | None] = []
        self._kept: OrderedDict[ChainKey, Row] = OrderedDict()

    def live(self) -> list[Row]:
        """Running rows in the order of their slots."""
        return [row for row in self._owners if row is not None and row.live]

    def window(self) -> list[Row | None]:
        """All owners up to the last live row."""
        last = max((row.slot for row in self._owners if row is not None and row.live), default=-1)
        return self._owners[: last + 1]

    def fits(self, rows: int, longest: int) -> bool:
        """Whether so many rows could all grow to ``longest`` tokens beside each other."""
        return rows * longest <= self._most_tokens

    def resumable(self, row: Row) -> Row | None:
        """The kept row whose cached ids are a proper prefix of the new row's prompt, if its chain has one."""
        key = row.request.chain_key
        kept = self._kept.get(key) if key is not None else None
        if kept is None or not kept.cached < len(row.ids) or kept.ids[: kept.cached] != row.ids[: kept.cached]:
            return None
        return kept

    def place(self, rows: list[Row]) -> None:
        """Give each row a slot: the one with its chain's prefix if there is one, else the first free one, else that of
        the row kept longest without use. Makes room in the cache."""
        for row in rows:
            if kept := self.resumable(row):
                self._drop(kept)
                self._take(row, kept.slot)
                row.cached = kept.cached
        free = [slot for slot, owner in enumerate(self._owners) if owner is None]
        free.reverse()
        for row in rows:
            if row.slot < 0:
                self._take(row, free.pop() if free else self._new_slot())
        self.reserve(max(len(row.ids) for row in rows))

    def _take(self, row: Row, slot: int) -> None:
        self._owners[slot] = row
        row.slot = slot

    def _new_slot(self) -> int:
        if len(self._owners) < self._most_rows or not self._kept:
            self._owners.append(None)
            return len(self._owners) - 1
        oldest = next(iter(self._kept.values()))
        self._drop(oldest)
        return oldest.slot

    def reserve(self, length: int) -> None:
        """Make room for every row at ``length`` tokens and one more. Rows may change their slots.

        If memory does not suffice, kept rows are dropped and the cache is cut to what the live ones need.
        """
        length = self._rounded(length)
        if len(self._owners) * max(length, self.cache.length) > self._most_tokens:
            self.forget()
            self.compact(0.0)
            self._owners = self.window()
            length = self._rounded(length - 1)
            if len(self._owners) * self.cache.length > self._most_tokens:
                self.cache.resize(len(self._owners), length)
        rows = max(len(self._owners), self.cache.rows)
        if rows > self.cache.rows or length > self.cache.length:
            more_rows = min(rows + rows // 4, self._most_rows) if rows > self.cache.rows else rows
            more_length = length + length // 4 if length > self.cache.length else self.cache.length
            if max(more_rows, rows) * more_length <= self._most_tokens:
                self.cache.resize(max(more_rows, rows), more_length)
            else:
                self.cache.resize(len(self._owners), max(length, self.cache.length))

    def _rounded(self, length: int) -> int:
        length = 1 + max([length, *(row.cached for row in self._owners if row is not None)])
        return -(-length // LENGTH_STEP) * LENGTH_STEP

    def finish(self, row: Row) -> None:
        """The row stopped sampling: keep what is cached for its chain's next turn."""
        row.live = False
        key = row.request.chain_key
        if key is None:
            self._owners[row.slot] = None
            return
        if old := self._kept.pop(key, None):
            self._owners[old.slot] = None
        self._kept[key] = row

    def free(self, row: Row) -> None:
        """The row is given up (cancelled or failed)."""
        row.live = False
        if row.slot >= 0:
            self._owners[row.slot] = None

    def _drop(self, kept: Row) -> None:
        del self._kept[kept.request.chain_key]  # type: ignore[arg-type]
        self._owners[kept.slot] = None

    def forget(self) -> None:
        """Drop all kept rows."""
        for row in list(self._kept.values()):
            self._drop(row)

    def clear(self) -> None:
        """Drop all rows and the memory behind them."""
        self._owners.clear()
        self._kept.clear()
        self.cache.clear()

    def compact(self, slack: float) -> None:
        """If more than ``slack`` of the window is not live, move the live rows to the front."""
        window = self.window()
        live = [row for row in window if row is not None and row.live]
        if len(window) - len(live) <= slack * len(window):
            return
        holes = [slot for slot in range(len(live)) if (owner := window[slot]) is None or not owner.live]
        movers = [row for row in live if row.slot >= len(live)]
        copies: list[tuple[int, int, int]] = []
        for row, hole in zip(movers, holes, strict=True):
            slot, displaced = row.slot, self._owners[hole]
            copies.append((slot, hole, row.cached))
            self._take(row, hole)
            self._owners[slot] = None
            if displaced is not None:
                copies.append((hole, slot, displaced.cached))
                self._take(displaced, slot)
        filled = [copy for copy in copies if copy[2] > 0]
        if filled:
            source, target, lengths = zip(*filled, strict=True)
            self.cache.copy(source, target, max(lengths))
