"""Frames over a process in a sandbox: four bytes of length, then JSON. Nothing that comes back is believed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from typing import Any

from agentfly_core.types import SandboxProcess

_LENGTH = struct.Struct(">I")


class BadReply(Exception):
    """What came back is nothing that our own program would have sent."""


async def send(process: SandboxProcess, message: dict[str, Any]) -> None:
    """Write one message.

    Raises:
        BrokenPipeError: the process is gone.
    """
    payload = json.dumps(message).encode()
    await process.write(_LENGTH.pack(len(payload)) + payload)


async def receive(process: SandboxProcess, limit: int) -> dict[str, Any]:
    """Read one message of at most ``limit`` bytes.

    Raises:
        EOFError: the process is gone. BadReply: it is too long, or no JSON object.
    """
    (size,) = _LENGTH.unpack(await _exactly(process, _LENGTH.size))
    if size > limit:
        raise BadReply("its answer was too long")
    try:
        message = json.loads(await _exactly(process, size))
    except (ValueError, RecursionError) as error:
        raise BadReply("its answer could not be read") from error
    if not isinstance(message, dict):
        raise BadReply("its answer had the wrong form")
    return message


async def end_quietly(process: SandboxProcess | None) -> None:
    """End a process whose sandbox may be gone already."""
    if process is not None:
        with contextlib.suppress(Exception):  # then it has ended, and that is what we want
            await asyncio.shield(process.kill())


async def _exactly(process: SandboxProcess, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await process.read(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
