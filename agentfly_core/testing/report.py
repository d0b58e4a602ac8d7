"""What the checks find, collected and raised at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from agentfly_core.calls import describe_error

T = TypeVar("T")

MAX_SHOWN = 200
"""Characters of a value or an error that a violation shows."""
GRACE = 5.0
"""Seconds that a loop gets to wind up after its time limit before its thread is left behind."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        what: what was seen.
        where: which member, with which input.
        fix: how to mend it.
    """

    what: str
    where: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n      mend: {self.fix}"


class ConformanceError(AssertionError):
    """A part breaks its contract. ``violations`` has all that was found, not only the first."""

    def __init__(self, subject: str, violations: list[Violation]) -> None:
        self.subject = subject
        self.violations = tuple(violations)
        count = f"{len(violations)} violation{'s' if len(violations) > 1 else ''}"
        listing = "".join(f"\n  {number}. {violation}" for number, violation in enumerate(violations, 1))
        super().__init__(f"{subject} breaks its contract, {count}:{listing}")


class Report:
    """Collects violations; the same one is kept once, with the first place where it was seen."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.violations: list[Violation] = []

    def add(self, what: str, *, where: str, fix: str) -> None:
        """Keep a violation."""
        if not any((v.what, v.fix) == (what, fix) for v in self.violations):
            self.violations.append(Violation(what, where, fix))

    def expect(self, good: bool, what: str, *, where: str, fix: str) -> bool:
        """Keep a violation unless ``good``, which is returned."""
        if not good:
            self.add(what, where=where, fix=fix)
        return good

    @contextmanager
    def guard(self, where: str, fix: str) -> Iterator[None]:
        """Turn whatever the block raises into a violation; those of a nested check are taken over."""
        try:
            yield
        except ConformanceError as error:
            for v in error.violations:
                self.add(v.what, where=f"{where}: {v.where}", fix=v.fix)
        except (Exception, SystemExit) as error:
            self.add(f"it raised {show_error(error)}", where=where, fix=fix)

    async def attempt(self, call: Callable[[], Any], *, where: str, fix: str, seconds: float) -> Any:
        """What an async call gives; None, with a violation, if it raises, hangs or is not async."""
        with self.guard(where, fix):
            result = call()
            if not inspect.isawaitable(result):
                self.add("it is not async", where=where, fix="write `async def`")
                return result
            try:
                return await asyncio.wait_for(result, seconds)
            except asyncio.TimeoutError as error:
                raise TimeoutError(f"no answer within {seconds:g} s") from error
        return None

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], *, seconds: float) -> None:
        """Run checks on an event loop of their own; one that blocks the loop for ever is a violation."""
        with self.guard("the checks as a whole", "never block the event loop: run slow code in a thread or a process"):
            run_async(work, seconds=seconds)

    def finish(self) -> None:
        """Raise what was found.

        Raises:
            ConformanceError: there is a violation.
        """
        if self.violations:
            raise ConformanceError(self.subject, self.violations)


def run_async(work: Callable[[], Coroutine[Any, Any, T]], *, seconds: float) -> T:
    """Run a coroutine on a new loop in a new thread, whether or not a loop runs here.

    Raises:
        TimeoutError: it did not end in time; a thread that is stuck is left behind.
    """
    future: Future[T] = Future()

    def target() -> None:
        try:
            future.set_result(asyncio.run(asyncio.wait_for(work(), seconds)))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=target, name="agentfly-check", daemon=True).start()
    try:
        return future.result(seconds + GRACE)
    except (FutureTimeoutError, asyncio.TimeoutError) as error:
        raise TimeoutError(f"it did not end within {seconds:g} s") from error


async def settle(value: Any) -> Any:
    """The value, awaited if it is awaitable: optional members may be async or not."""
    return await value if inspect.isawaitable(value) else value


def show(value: Any) -> str:
    """A value in few characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def show_error(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(describe_error(error).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
