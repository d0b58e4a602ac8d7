"""The worker's side: makes one object, then answers one request after another until its parent is gone.

The parent starts it with nothing imported but this (see ``worker.BOOTSTRAP``), so that whatever the parent's main
module is, it does not run again here.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

from agentfly_core.resources.host import Host
from agentfly_core.resources.wire import read_frame, write_frame


def main() -> None:
    """Serve requests from standard input; replies go to what was standard output."""
    requests, replies = _take_pipes()
    asyncio.run(_serve(requests, replies))


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The two pipes under descriptors of their own, so that nothing the object reads or prints touches them."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


async def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    inbox: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_receive, args=(requests, loop, inbox), daemon=True).start()
    host = Host(_invoke)
    while True:
        frame = await inbox.get()
        write_frame(replies, await _answer(host, frame))


def _receive(requests: IO[bytes], loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[bytes]) -> None:
    """Runs on a thread of its own so that the parent's end is noticed in the middle of a call."""
    try:
        while True:
            loop.call_soon_threadsafe(inbox.put_nowait, read_frame(requests))
    except (EOFError, OSError):
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


async def _invoke(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = function(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def _answer(host: Host, frame: bytes) -> bytes:
    """The reply's frame: ``(True, result)`` or ``(False, pickled exception or None, its text, traceback)``."""
    try:
        operation, payload = pickle.loads(frame)
        result = await getattr(host, operation)(*payload)
    except BaseException as error:
        return pickle.dumps((False, _portable(error), _text(error), traceback.format_exc()))
    try:
        return pickle.dumps((True, result))
    except Exception as error:
        text = f"its result, of type {type(result).__qualname__}, cannot be sent: {_text(error)}"
        return pickle.dumps((False, None, text, traceback.format_exc()))


def _portable(error: BaseException) -> bytes | None:
    """The pickled exception, if it is an ordinary one that survives the journey."""
    if not isinstance(error, Exception):
        return None
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
