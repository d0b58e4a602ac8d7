"""A limit on waiting that nests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def bounded(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of ``work``, which is cancelled when it takes longer.

    ``asyncio.wait_for`` before Python 3.12 drops a cancellation that comes together with the result, and so the limit
    of another one around it. This one raises it.

    Raises:
        asyncio.TimeoutError: it took longer.
    """
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_retrieve)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Its error may interest nobody any more: then it is not to be reported as one that nobody saw."""
    if not task.cancelled():
        task.exception()
