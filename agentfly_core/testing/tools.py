"""Whether a tool keeps its contract (``types.Tool``)."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly_core.testing.report import Report, run_async, show, show_error
from agentfly_core.testing.samples import HOSTILE_TEXTS, forbidden_arguments, sample_arguments, valid
from agentfly_core.types import InvalidArguments, Tool, ToolContext, ToolOutcome, ToolStatus, is_content

OUTCOME = "return a ToolOutcome whatever happens, with status failed and a text for the model; only cancellation raises"
BLOCKED = 0.5
"""Seconds of a call without one turn of the event loop that count as blocking it."""


def check_tool(
    tool: Tool,
    *,
    calls: Sequence[Mapping[str, Any]] = (),
    context: ToolContext | None = None,
    timeout: float = 30.0,
) -> None:
    """Check a tool's schema and how it answers wrong arguments; with ``calls``, also how it runs.

    Args:
        calls: arguments with which the tool may really be called, each several times, and should succeed. Without
            any, the tool is only called with arguments that its own schema forbids.
        context: what the calls get; an empty ``ToolContext`` if not given.
        timeout: seconds that one call may take.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report(f"tool {getattr(tool, 'name', tool)!r}")
    members = ("name", "description", "parameters", "exclusive", "schema", "check_arguments", "call")
    lacking = [member for member in members if not hasattr(tool, member)]
    fix = "decorate the function with @tool, or implement agentfly_core.types.Tool"
    if report.expect(not lacking, f"it lacks {', '.join(lacking)}", where="the tool", fix=fix):
        _Check(report, tool, context or ToolContext(), timeout).all(calls)
    report.finish()


class _Check:
    def __init__(self, report: Report, tool: Tool, context: ToolContext, timeout: float) -> None:
        self.report, self.tool, self.context, self.timeout = report, tool, context, timeout

    def all(self, calls: Sequence[Mapping[str, Any]]) -> None:
        self._names()
        schema = None
        with self.report.guard("parameters", "give a JSON Schema of type object"):
            schema = self._schema()
        if schema is None:
            return
        base = calls[0] if calls else sample_arguments(schema)
        for what, wrong in forbidden_arguments(schema, base or {}):
            self._refuses(wrong, f"arguments {what}")
        if base is not None:
            self._survives_hostile_texts(schema, base)
        for arguments in calls:
            self._call(schema, arguments)

    def _names(self) -> None:
        name, description = self.tool.name, self.tool.description
        good = isinstance(name, str) and 0 < len(name) <= 64 and name.isascii()
        good = good and all(c.isalnum() or c in "_-." for c in name)
        fix = "use 1 to 64 ASCII letters, digits, '_', '-' or '.'"
        self.report.expect(good, f"{name!r} is no name that a model can call", where="name", fix=fix)
        good = isinstance(description, str) and bool(description.strip())
        fix = "write a docstring: it is all that the model knows of the tool"
        self.report.expect(good, "it is empty", where="description", fix=fix)
        good = isinstance(self.tool.exclusive, bool)
        self.report.expect(good, f"{self.tool.exclusive!r} is no bool", where="exclusive", fix="say True or False")

    def _schema(self) -> dict[str, Any] | None:
        import jsonschema

        parameters = self.tool.parameters
        fix = "give a JSON Schema: see json-schema.org, draft 2020-12"
        try:
            jsonschema.Draft202012Validator.check_schema(parameters)
        except jsonschema.SchemaError as error:
            what = f"they are no valid JSON Schema: {error.message}"
            self.report.add(what, where="parameters", fix=fix)
            return None
        good = isinstance(parameters, dict) and parameters.get("type") == "object"
        fix = 'arguments have names: begin with {"type": "object", "properties": ...}'
        if not self.report.expect(good, "they are not of type object", where="parameters", fix=fix):
            return None
        shown = self.tool.schema()
        own = {"name": self.tool.name, "description": self.tool.description, "parameters": parameters}
        good = shown == {"type": "function", "function": own} and self.tool.schema() == shown
        fix = "return {'type': 'function', 'function': {name, description, parameters}}, the same each time"
        self.report.expect(good, f"it gives {show(shown)}", where="schema()", fix=fix)
        json.dumps(shown, allow_nan=False)
        return parameters

    def _refuses(self, arguments: dict[str, Any], where: str) -> None:
        fix = "raise InvalidArguments, with a text from which the model can correct itself"
        try:
            self.tool.check_arguments(copy.deepcopy(arguments))
            self.report.add("it accepts what its own schema forbids", where=f"check_arguments, {where}", fix=fix)
        except InvalidArguments as error:
            self.report.expect(bool(str(error)), "the error has no text", where=f"check_arguments, {where}", fix=fix)
        except Exception as error:
            what = f"it raised {type(error).__name__} where InvalidArguments is meant"
            self.report.add(what, where=f"check_arguments, {where}", fix=fix)
        outcome = self._outcome(arguments, where)
        if outcome is not None:
            what = f"wrong arguments gave the status {outcome.status.value!r}"
            fix = "answer with ToolStatus.INVALID_ARGUMENTS before anything is run"
            good = outcome.status is ToolStatus.INVALID_ARGUMENTS
            self.report.expect(good, what, where=f"call, {where}", fix=fix)

    def _survives_hostile_texts(self, schema: Mapping[str, Any], base: Mapping[str, Any]) -> None:
        for name in schema.get("properties", {}):
            for text in HOSTILE_TEXTS:
                try:
                    self.tool.check_arguments({**base, name: text})
                except InvalidArguments:
                    continue
                except Exception as error:
                    what = f"it raised {type(error).__name__} where InvalidArguments is meant"
                    where = f"check_arguments, {name}={show(text)}"
                    self.report.add(what, where=where, fix="models write anything: catch what the conversion raises")
                    return

    def _call(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        where = f"call with {show(dict(arguments))}"
        fix = "pass calls that fit the schema, or widen the schema"
        if not self.report.expect(valid(schema, dict(arguments)), "its schema forbids them", where=where, fix=fix):
            return
        before = copy.deepcopy(dict(arguments))
        outcome = self._outcome(arguments, where)
        fix = "copy the arguments before changing them: they stand in the trajectory"
        self.report.expect(dict(arguments) == before, "it changed its arguments", where=where, fix=fix)
        if outcome is not None:
            what = f"the call ended {outcome.status.value}: {show(outcome.content)}"
            fix = "make the call succeed; pass `context` if it needs fields, a world or resources (`play` has these)"
            self.report.expect(outcome.status is ToolStatus.OK, what, where=where, fix=fix)
            self._cancelled(arguments, where)

    def _outcome(self, arguments: Mapping[str, Any], where: str) -> ToolOutcome | None:
        """The outcome of one call, itself checked; None if it is none."""
        try:
            outcome, blocked = run_async(lambda: self._watched(arguments), seconds=self.timeout)
        except (Exception, SystemExit) as error:
            self.report.add(f"it raised {show_error(error)}", where=where, fix=OUTCOME)
            return None
        fix = "do not block in an async function: await, or make it a plain function, which runs in a thread"
        self.report.expect(not blocked, "it blocks the event loop", where=where, fix=fix)
        if not isinstance(outcome, ToolOutcome):
            self.report.add(f"it returned {show(outcome)}, no ToolOutcome", where=where, fix=OUTCOME)
            return None
        fix = "put the tool's own name"
        what = f"the outcome is named {outcome.name!r}"
        self.report.expect(outcome.name == self.tool.name, what, where=where, fix=fix)
        what = f"the content is {show(outcome.content)}"
        fix = "give text, or a list of text and image parts: it goes to the model and into the run folder"
        self.report.expect(is_content(outcome.content), what, where=where, fix=fix)
        numbers = (outcome.seconds, *outcome.metrics.values())
        good = all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
        self.report.expect(good, "seconds or metrics are not finite numbers", where=where, fix="report finite numbers")
        return outcome

    async def _watched(self, arguments: Mapping[str, Any]) -> tuple[Any, bool]:
        """The result, and whether nothing else got its turn meanwhile."""
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        heart = asyncio.ensure_future(beat())
        began = time.monotonic()
        try:
            outcome = await self.tool.call(arguments, self.context)
        finally:
            heart.cancel()
        return outcome, time.monotonic() - began > BLOCKED and beats < 2

    def _cancelled(self, arguments: Mapping[str, Any], where: str) -> None:
        async def cancel() -> str:
            task = asyncio.ensure_future(self.tool.call(arguments, self.context))
            await asyncio.sleep(0)
            if task.done():
                return ""
            task.cancel()
            await asyncio.wait({task}, timeout=self.timeout)
            if not task.done():
                return "it does not end when cancelled"
            return "" if task.cancelled() else "it swallows cancellation"

        with self.report.guard(f"cancelling a {where}", OUTCOME):
            what = run_async(cancel, seconds=self.timeout * 2)
            fix = "let asyncio.CancelledError pass: a chain that is stopped must not wait for its tools"
            self.report.expect(not what, what, where=f"cancelling a {where}", fix=fix)
