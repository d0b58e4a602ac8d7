"""The thread that runs the model: everything that touches the model or its cache after start-up happens here."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from agentfly_core.backends.batch import Batch
from agentfly_core.backends.slots import Row, Slots
from agentfly_core.backends.weights import copy_weights
from agentfly_core.types import AgentFlyError, UsageError


@dataclass(eq=False, slots=True)
class Wave:
    """Rows that run together, in this order, without any other."""

    rows: list[Row]


@dataclass(eq=False, slots=True)
class Update:
    """New weights."""

    weights: Mapping[str, Tensor]
    version: int
    future: asyncio.Future[None]
    abandoned: bool = False


Item: TypeAlias = "Row | Wave | Update"

JOIN_SHARE = 0.125
JOIN_STEPS = 4
"""A prefill costs a pass of its own, so rows join a running batch together: once they are this share of it, or have
waited for so many steps."""


class Worker:
    """Takes rows, waves and updates strictly in the order in which they were submitted.

    A row joins the batch at the next step if it has a place. A wave or an update waits until the batch is empty, and
    what comes after it waits for it.
    """

    def __init__(self, model: nn.Module, batch: Batch, slots: Slots, max_batch: int, threads: int | None) -> None:
        self._model, self._batch, self._slots = model, batch, slots
        self._max_batch = max_batch
        self._threads = threads
        self._queue: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._waited = 0
        self._thread = threading.Thread(target=self._run, name="agentfly-hf-backend", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> None:
        """Queue an item.

        Raises:
            UsageError: the worker was stopped.
        """
        with self._changed:
            if self._closing:
                raise UsageError("the hf backend is closed")
            self._queue.append(item)
            self._changed.notify()

    def stop(self) -> None:
        """End the thread after the step it is in; everything unfinished fails. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            while self._wait():
                self._batch.drop_abandoned()
                if not self._batch.live():
                    self._run_exclusive()
                self._admit()
                self._step()
        finally:
            self._abandon()

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._queue or self._batch.live())
            return not self._closing

    def _run_exclusive(self) -> None:
        """Work off waves and updates at the head of the queue; the batch is empty."""
        while not self._closing and (item := self._pop_exclusive()) is not None:
            if isinstance(item, Wave):
                self._run_wave(item)
            else:
                self._apply(item)

    def _pop_exclusive(self) -> Wave | Update | None:
        with self._changed:
            if self._queue and not isinstance(self._queue[0], Row):
                return self._queue.popleft()  # type: ignore[return-value]
            return None

    def _apply(self, update: Update) -> None:
        if update.abandoned:
            return
        try:
            copy_weights(self._model, update.weights)
            self._slots.clear()
            self._batch.version = update.version
            self._batch.outbox.put(update.future, None)
        except Exception as error:
            self._batch.outbox.put(update.future, error)
        self._batch.outbox.flush()

    def _run_wave(self, wave: Wave) -> None:
        """Run a wave, in consecutive batches if it is larger than a batch may be.

        A wave in which no chain goes on starts from an empty cache, so that it and those that follow it take the same
        steps on the same memory layout however often they are repeated.
        """
        if not any(self._slots.resumable(row) for row in wave.rows):
            self._slots.clear()
        rest = deque(wave.rows)
        while rest and not self._closing:
            self._admit_rows(self._take_fitting(rest))
            while self._batch.live() and not self._closing:
                self._batch.drop_abandoned()
                self._step()
        for row in rest:
            self._batch.fail(row, _closed())

    def _admit(self) -> None:
        with self._changed:
            waiting = len(self._queue)
            if 0 < waiting < JOIN_SHARE * len(self._batch.live()) and self._waited < JOIN_STEPS:
                self._waited += 1
                return
            self._waited = 0
            rows = self._take_fitting(self._queue)
        if rows:
            self._admit_rows(rows)

    def _take_fitting(self, queue: deque[Item] | deque[Row]) -> list[Row]:
        """Take rows from the head of the queue for as long as there is a place for them."""
        live = self._batch.live()
        longest = max((row.most for row in live), default=0)
        taken: list[Row] = []
        while queue and isinstance(row := queue[0], Row):
            count = len(live) + len(taken) + 1
            longest = max(longest, row.most)
            if count > 1 and (count > self._max_batch or not self._slots.fits(count, longest)):
                break
            queue.popleft()
            if not row.abandoned:
                taken.append(row)
        return taken

    def _admit_rows(self, rows: list[Row]) -> None:
        self._guarded(rows, lambda: self._batch.admit(rows))

    def _step(self) -> None:
        if live := self._batch.live():
            self._guarded(live, self._batch.step)

    def _guarded(self, rows: Sequence[Row], work: Callable[[], None]) -> None:
        """Do the work; if it fails, those rows fail and the thread goes on."""
        try:
            work()
        except Exception as error:
            for row in rows:
                if row.live:
                    self._batch.fail(row, _explained(error, len(rows)))
        self._batch.outbox.flush()

    def _abandon(self) -> None:
        with self._changed:
            self._closing = True
            items = list(self._queue)
            self._queue.clear()
        rows = self._batch.live()
        for item in items:
            if isinstance(item, Row):
                rows.append(item)
            elif isinstance(item, Wave):
                rows.extend(item.rows)
            else:
                self._batch.outbox.put(item.future, _closed())
        for row in rows:
            self._batch.fail(row, _closed())
        self._batch.outbox.flush()
        self._slots.clear()


def _closed() -> AgentFlyError:
    return AgentFlyError("the hf backend was closed while the request was waiting or running")


def _explained(error: Exception, rows: int) -> AgentFlyError:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    memory = isinstance(error, torch.OutOfMemoryError) or "memory" in text.lower()
    hint = "; lower max_batch, cache_gib or the lengths" if memory else ""
    failed = AgentFlyError(f"a model pass over {rows} rows failed: {text}{hint}")
    failed.__cause__ = error
    return failed
