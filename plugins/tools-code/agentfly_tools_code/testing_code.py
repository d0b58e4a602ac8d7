"""Runs tests against code of a model: each in a sandbox of its own, joined by nothing but this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentfly_core.types import Sandbox, SandboxProcess
from agentfly_tools_code.frames import BadReply, end_quietly, receive, send
from agentfly_tools_code.inside.values import Unfit, check
from agentfly_tools_code.sources import command
from agentfly_tools_code.waiting import bounded

MAX_MESSAGE = 16_000_000
MAX_FAILURES = 20
START_SECONDS = 20.0
"""For a process to start in a sandbox, beside what it does there."""


class BrokenTests(Exception):
    """The tests themselves are at fault: nothing can be said of the code."""


@dataclass(slots=True)
class Report:
    """What became of the tests.

    Attributes:
        expected: how many there are, as far as they can be counted before they run. passed, failed: how many did.
        failures: what went wrong, for logs.
        complete: whether all that stands between the tests ran as well.
    """

    expected: int = 0
    passed: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def fraction(self) -> float:
        """Of the tests that passed. Where they broke off, those that did not get to run have failed."""
        count = max(self.expected, self.passed + self.failed)
        return self.passed / count if count else 0.0

    @property
    def good(self) -> bool:
        """Whether everything passed."""
        return self.complete and not self.failures and 0 < self.expected == self.passed

    def fail(self, why: str) -> None:
        """Note a failure."""
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(why)


async def run_tests(
    code: str,
    tests: Sequence[str],
    *,
    harness: Sandbox,
    candidate: Sandbox | None,
    entry_point: str | None = None,
    call_seconds: float,
    seconds: float,
) -> Report:
    """Run the tests in ``harness`` against code that runs in ``candidate``.

    Args:
        tests: pieces of code with asserts, test functions, test cases, or ``check(candidate)``.
        candidate: None runs the code in the harness itself, where it can forge the verdict.
        entry_point: the name that the tests use; None takes what they use and do not define.
        call_seconds: limit of one call. seconds: of everything.

    Raises:
        BrokenTests: see there.
        ResourceError: a sandbox is gone.
    """
    solution = None if candidate is None else Solution(candidate, code, call_seconds)
    report = Report()
    process = await harness.open(command(harness.python, "harness"))
    inside = code if candidate is None else None
    begun = candidate is None
    try:
        request = {"tests": list(tests), "entry_point": entry_point, "code": inside}
        await send(process, request)
        first = await bounded(receive(process, MAX_MESSAGE), START_SECONDS)
        if not _collect(first, report):
            await bounded(_serve(process, solution, report, seconds), seconds)
    except (asyncio.TimeoutError, EOFError, BrokenPipeError, BadReply) as error:
        late = isinstance(error, asyncio.TimeoutError)
        why = f"it took longer than {seconds:g} s" if late else "the tests broke off"
        if not begun and (solution is None or not solution.asked):
            raise BrokenTests(f"{why} before they used the code") from None
        report.complete = False
        report.fail(why)
    finally:
        await end_quietly(process)
        if solution is not None:
            await solution.end()
    return report


async def _serve(process: SandboxProcess, solution: Solution | None, report: Report, seconds: float) -> None:
    """Relay calls and collect results until the tests end.

    Raises:
        asyncio.TimeoutError: they take longer, answers that never let this task wait included.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    ended = False
    while not ended:
        if clock() > end:
            raise asyncio.TimeoutError
        message = await receive(process, MAX_MESSAGE)
        if "ask" in message and solution is not None:
            await send(process, await solution.ask(message["ask"]))
        else:
            ended = _collect(message, report)


def _collect(message: dict[str, Any], report: Report) -> bool:
    """Note what the tests say; whether they have ended."""
    if "expected" in message:
        report.expected = int(message["expected"])
    elif "passed" in message:
        report.passed += 1
    elif "failed" in message:
        report.failed += 1
        report.fail(f"{message['failed']}: {message.get('why')}")
    elif "stopped" in message:
        report.complete = False
        report.fail(str(message["stopped"]))
    elif "broken" in message:
        raise BrokenTests(str(message["broken"]))
    elif "end" not in message:
        raise BadReply("it had the wrong form")
    return "end" in message


class Solution:
    """The code under test in its sandbox. It may die or hang in a call and is begun anew for the next one.

    Attributes:
        asked: whether the tests have asked anything of it.
    """

    def __init__(self, sandbox: Sandbox, code: str, seconds: float) -> None:
        self._sandbox = sandbox
        self._code = code
        self._seconds = seconds
        self._process: SandboxProcess | None = None
        self._unloadable: dict[str, Any] | None = None
        self.asked = False

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer, read and found to be plain data, or an error in its place."""
        self.asked = True
        if self._unloadable is None and self._process is None:
            self._process = await self._sandbox.open(command(self._sandbox.python, "candidate"))
            loaded = await self._exchange({"do": "load", "code": self._code}, self._seconds + START_SECONDS)
            if "error" in loaded:
                await self.end()
                self._unloadable = loaded
        if self._unloadable is not None:
            return self._unloadable
        return await self._exchange(request, self._seconds)

    async def end(self) -> None:
        """End its process."""
        process, self._process = self._process, None
        await end_quietly(process)

    async def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        try:
            await send(process, request)
            return _checked(await bounded(receive(process, MAX_MESSAGE), seconds))
        except asyncio.TimeoutError:
            reason = f"it did not answer within {self._seconds:g} s"
        except (EOFError, BrokenPipeError):
            reason = "its process ended"
        except BadReply as error:
            reason = str(error)
        await self.end()
        return {"error": ["NoAnswer"], "text": reason}


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of the right form, and nothing beside it. Its values are not built here, which might take hours.

    Raises:
        BadReply: it is not.
    """
    error, text, changed = answer.get("error"), answer.get("text"), answer.get("changed", [])
    if isinstance(error, list) and error and all(isinstance(n, str) for n in error) and isinstance(text, str):
        return {"error": error[:50], "text": text[:2000]}
    if "value" not in answer or not isinstance(changed, list):
        raise BadReply("its answer had the wrong form")
    try:
        check(answer["value"])
        for index, data in changed:
            if type(index) is not int:
                raise Unfit("an index is no number")
            check(data)
    except (ValueError, TypeError, RecursionError) as problem:
        raise BadReply(f"its answer is no plain data: {problem}") from None
    return {"value": answer["value"], "changed": changed}
