"""A session inside a sandbox, seen from outside: text in, what became of it out."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Literal

from agentfly_core.types import Sandbox, SandboxProcess
from agentfly_tools_code.frames import BadReply, end_quietly, receive, send
from agentfly_tools_code.sources import command

Kind = Literal["python", "bash"]

GRACE_SECONDS = 2.0
"""What code that is being interrupted gets before it is killed."""
BACKSTOP_SECONDS = 15.0
"""How much longer than that an answer may take before its supervisor is given up."""

_DETAILS = {
    "ok": ".*",
    "error": ".*",
    "timeout": ".*",
    "exit": r"\d{1,3}( .*)?",
    "died": r"(-?\d{1,3})?",
    "missing": "bash",
}
"""Status -> what its detail looks like."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a piece of code.

    Attributes:
        status: ``ok``; ``error``: it raised; ``exit``: it ended with an exit code; ``timeout``: it was stopped;
            ``died``: its process ended; ``lost``: the session's supervisor did; ``missing``: there is no program to
            run it.
        detail: exit code and names of figures, the reason of a loss, or the program's name.
        text: what was printed, bounded.
        kept: whether the session has its state still.
        lost_before: whether the session had died since the answer before this one.
    """

    status: str
    detail: str = ""
    text: str = ""
    kept: bool = True
    lost_before: bool = False


class Session:
    """One session, started when it is first used and again after it was lost. One call at a time."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._lock = asyncio.Lock()
        self._process: SandboxProcess | None = None
        self._number = 0

    async def run(self, sandbox: Sandbox, text: str, *, timeout: float, limit: int, fresh: bool = False) -> Answer:
        """Run code for at most ``timeout`` seconds and keep ``limit`` bytes of what it prints.

        Args:
            fresh: begin with a new session.

        Raises:
            ResourceError: the sandbox is gone, or no process can be started in it.
        """
        async with self._lock:
            self._number += 1
            request = {
                "id": self._number, "text": text, "timeout": timeout, "limit": limit, "fresh": fresh,
                "grace": GRACE_SECONDS,
            }  # fmt: skip
            done = False
            try:
                if self._process is None:
                    self._process = await sandbox.open(command(sandbox.python, "supervisor", self._kind))
                work = self._exchange(self._process, request)
                answer = await asyncio.wait_for(work, timeout + GRACE_SECONDS + BACKSTOP_SECONDS)
                done = True
                return answer
            except (EOFError, BrokenPipeError):
                return Answer("lost", "its processes were killed", kept=False)
            except asyncio.TimeoutError:
                return Answer("lost", "it stopped answering", kept=False)
            except BadReply as error:
                return Answer("lost", str(error), kept=False)
            finally:
                if not done:
                    await self._give_up()

    async def _exchange(self, process: SandboxProcess, request: dict[str, Any]) -> Answer:
        await send(process, request)
        reply = await receive(process, 8 * request["limit"] + 65536)  # a byte takes six in JSON at worst
        return read_reply(reply, request["id"])

    async def _give_up(self) -> None:
        process, self._process = self._process, None
        await end_quietly(process)


def read_reply(reply: dict[str, Any], number: int) -> Answer:
    """What a supervisor answered to the request of this number.

    Raises:
        BadReply: no supervisor of ours would have.
    """
    try:
        answer = Answer(reply["status"], reply["detail"], reply["text"], reply["kept"], reply["lost"])
        same = reply["id"] == number
    except KeyError as error:
        raise BadReply("its answer could not be read") from error
    kinds = (str, str, str, bool, bool)
    values = (answer.status, answer.detail, answer.text, answer.kept, answer.lost_before)
    if not same or any(type(v) is not k for v, k in zip(values, kinds, strict=True)):
        raise BadReply("its answer had the wrong form")
    if not re.fullmatch(_DETAILS.get(answer.status, "(?!)"), answer.detail):
        raise BadReply("its answer had the wrong form")
    return answer
