"""An agent that acts through tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentfly_core.agents.opening import opening_messages
from agentfly_core.types import (
    AssistantTurn,
    CallError,
    CallErrorKind,
    CallTools,
    Continue,
    Decision,
    Finish,
    InvalidArguments,
    Message,
    Observation,
    StepResult,
    Task,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    nearest,
)


class ToolCallingAgent:
    """Runs the calls of a turn and hands their results back; a turn without calls is the final answer.

    A call that cannot be run (malformed, unknown tool, wrong arguments) is handed back as an error beside the results
    of the good ones. A turn that the token limit cut before it held one whole call ends the chain, so that the reward
    falls on the turn that ran too long. Going on would reward later turns for a mistake that they did not make, and
    teach the model that rambling costs nothing.

    Args:
        system_prompt: first message of a chain whose task has no system message; None adds none.
        reminder: handed back after a turn without calls, for worlds that only end through a tool; None lets such a
            turn finish the chain.
    """

    name: ClassVar[str] = "tool-calling"

    def __init__(self, *, system_prompt: str | None = None, reminder: str | None = None) -> None:
        self._system_prompt = system_prompt
        self._reminder = reminder

    def start(self, task: Task, observation: Observation | None, tools: Mapping[str, Tool]) -> list[Message]:
        """The opening messages."""
        return opening_messages(task, observation, self._system_prompt)

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        """Run what can be run; finish without calls."""
        if turn.calls and not (turn.cut and all(isinstance(call, CallError) for call in turn.calls)):
            return CallTools(tuple(resolve(call, tools) for call in turn.calls))
        if self._reminder is not None and not turn.cut:
            return Continue(({"role": "user", "content": self._reminder},))
        return Finish(turn.content.strip())

    def observe(self, outcomes: Sequence[ToolOutcome]) -> list[Message]:
        """One tool message for each outcome, in the order of the calls."""
        return [_tool_message(outcome) for outcome in outcomes]

    def observe_step(self, result: StepResult) -> list[Message]:
        """The observation as a user message."""
        return [{"role": "user", "content": result.observation}]


def resolve(call: ToolCall | CallError, tools: Mapping[str, Tool]) -> ToolCall | CallError:
    """The call itself, or the error that the model is told if the tool does not exist or the arguments do not fit."""
    if isinstance(call, CallError):
        return call
    tool = tools.get(call.name)
    if tool is None:
        return CallError(CallErrorKind.UNKNOWN_TOOL, _unknown(call.name, tools), call.name, call.id)
    try:
        tool.check_arguments(call.arguments)
    except InvalidArguments as error:
        return CallError(CallErrorKind.INVALID_ARGUMENTS, str(error), call.name, call.id)
    return call


def _unknown(name: str, tools: Mapping[str, Tool]) -> str:
    if not tools:
        return f"Error: there is no tool {name!r}; there are no tools."
    likely = nearest(name, tools)
    meant = f" Did you mean {' or '.join(likely)}?" if likely else f" The tools are: {', '.join(sorted(tools))}."
    return f"Error: there is no tool {name!r}.{meant}"


def _tool_message(outcome: ToolOutcome) -> Message:
    message: Message = {"role": "tool", "content": outcome.content, "name": outcome.name}
    if outcome.call_id:
        message["tool_call_id"] = outcome.call_id
    return message
