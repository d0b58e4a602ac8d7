"""Running code of others inside a chain without letting it harm the chain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3.0
"""How long a cancelled call may take to end before it is left behind."""


class Contained(Exception):
    """Foreign code raised something that would have ended more than its own call."""


async def contained(work: Coroutine[Any, Any, T], *, what: str, timeout: float | None = None) -> T:
    """Await ``work`` in a task of its own, so that nothing it does but return or raise reaches the caller.

    A ``SystemExit``, ``KeyboardInterrupt`` or ``CancelledError`` that it raises itself becomes ``Contained``. If the
    caller is cancelled, so is ``work``; work that ignores its cancellation is left behind and reported.

    Raises:
        TimeoutError: ``work`` took longer than ``timeout`` seconds.
    """
    task = asyncio.ensure_future(_without_exit(work))
    try:
        await asyncio.wait((task,), timeout=timeout)
    except asyncio.CancelledError:
        await _end(task, what)
        raise
    if not task.done():
        await _end(task, what)
        raise TimeoutError(f"{what} took longer than {timeout:g} s")
    if task.cancelled():
        raise Contained(f"{what} was cancelled")
    return task.result()


async def _without_exit(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise Contained(f"{type(error).__name__}: {error}") from error


async def _end(task: asyncio.Future[Any], what: str) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=GRACE_SECONDS)
    if task.done():
        _retrieve(task)
    else:
        logger.warning("%s ignored its cancellation and is left behind", what)
        task.add_done_callback(_retrieve)


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Take the exception of work that nobody waits for, which asyncio would report as never retrieved."""
    if not task.cancelled():
        task.exception()


def describe(error: BaseException) -> str:
    """One line for a trajectory's ``error``: what was raised, and where."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return text
    code = frame.tb_frame.f_code
    return f"{text} (in {code.co_name}, {code.co_filename}:{frame.tb_lineno})"
