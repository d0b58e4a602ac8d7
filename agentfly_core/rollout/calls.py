"""The tool calls of one turn: run, each to a typed outcome, whatever the tool does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentfly_core.rollout.scope import contained
from agentfly_core.types import (
    CallError,
    CallErrorKind,
    ResourceError,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolStatus,
)

OnOutcome = Callable[[ToolOutcome], None]

_STATUS = {
    CallErrorKind.UNKNOWN_TOOL: ToolStatus.UNKNOWN_TOOL,
    CallErrorKind.INVALID_ARGUMENTS: ToolStatus.INVALID_ARGUMENTS,
}


async def run_calls(
    calls: Sequence[ToolCall | CallError], tools: Mapping[str, Tool], context: ToolContext, on_outcome: OnOutcome
) -> tuple[ToolOutcome, ...]:
    """One outcome for each call, in the calls' order.

    Calls run concurrently; a call of an ``exclusive`` tool waits for all before it and holds up all after it.

    Args:
        on_outcome: told of each call as it ends.

    Raises:
        ResourceError: what a tool needs could not be had. The calls beside it have ended.
    """
    outcomes: list[ToolOutcome] = []
    for batch in _batches(calls, tools):
        if len(batch) == 1:
            outcomes.append(await _run(batch[0], tools, context, on_outcome))
        else:
            works = [_run(call, tools, context, on_outcome) for call in batch]
            for outcome in await asyncio.gather(*works, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                outcomes.append(outcome)
    return tuple(outcomes)


def _batches(calls: Sequence[ToolCall | CallError], tools: Mapping[str, Tool]) -> list[list[ToolCall | CallError]]:
    """Neighbouring calls that may run at the same time."""
    batches: list[list[ToolCall | CallError]] = []
    alone = True
    for call in calls:
        exclusive = isinstance(call, ToolCall) and call.name in tools and tools[call.name].exclusive
        if alone or exclusive:
            batches.append([call])
        else:
            batches[-1].append(call)
        alone = exclusive
    return batches


async def _run(
    call: ToolCall | CallError, tools: Mapping[str, Tool], context: ToolContext, on_outcome: OnOutcome
) -> ToolOutcome:
    if isinstance(call, CallError):
        status = _STATUS.get(call.kind, ToolStatus.MALFORMED)
        outcome = ToolOutcome(call.name or "", status, call.message, call_id=call.id)
    elif call.name not in tools:
        outcome = ToolOutcome(call.name, ToolStatus.UNKNOWN_TOOL, f"Error: unknown tool {call.name!r}", call_id=call.id)
    else:
        try:
            outcome = await _call(tools[call.name], call, context)
        except ResourceError as error:
            on_outcome(ToolOutcome(call.name, ToolStatus.FAILED, f"Error: {error}", call_id=call.id))
            raise
    on_outcome(outcome)
    return outcome


async def _call(tool: Tool, call: ToolCall, context: ToolContext) -> ToolOutcome:
    """The tool's own outcome, or a failed one for a tool that breaks its promise to return one."""
    started = time.perf_counter()
    try:
        outcome = await contained(tool.call(call.arguments, context), what=f"tool {call.name!r}")
        if not isinstance(outcome, ToolOutcome):
            raise TypeError(f"its call returned {type(outcome).__name__}, not a ToolOutcome")
        return outcome if outcome.call_id == call.id else replace(outcome, call_id=call.id)
    except ResourceError:
        raise
    except Exception as error:
        text = f"Error: tool {call.name!r} failed: {type(error).__name__}: {error}"
        return ToolOutcome(call.name, ToolStatus.FAILED, text, time.perf_counter() - started, call_id=call.id)
