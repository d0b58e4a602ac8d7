"""Conversations that bring out where templates rewrite history and where tokens merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentfly_core.types.messages import Message, ToolSchema

End = Literal["end", "other", "cut"]
"""How a turn ends: on the format's end token, on another stop token, or on none."""


@dataclass(frozen=True, slots=True)
class ProbeTurn:
    """A sampled turn's text, and the messages that follow it."""

    raw: str
    observation: tuple[Message, ...]
    end: End = "end"


@dataclass(frozen=True, slots=True)
class Probe:
    """A conversation with sampled turns; without any it probes the prompt alone."""

    name: str
    turns: tuple[ProbeTurn, ...] = ()
    messages: tuple[Message, ...] = ({"role": "user", "content": "What is 1+1?"},)
    tools: tuple[ToolSchema, ...] = ()


TOOL: ToolSchema = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate <b>an</b> expression, e.g. 2 * π & more.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'
THINK = "<think>\nOne and one.\n</think>\n\n"

USER: Message = {"role": "user", "content": "And times 3?"}
RESULT: Message = {"role": "tool", "content": "2"}


def _tool(name: str, *turns: ProbeTurn) -> Probe:
    return Probe(name, turns, tools=(TOOL,))


PROBES: tuple[Probe, ...] = (
    Probe("system message", messages=({"role": "system", "content": "Be brief."}, USER)),
    Probe("empty system message", messages=({"role": "system", "content": ""}, USER)),
    Probe("two tools", tools=(TOOL, {"type": "function", "function": {"name": "now", "parameters": {}}})),
    Probe("system message and tool", messages=({"role": "system", "content": "Be brief."}, USER), tools=(TOOL,)),
    Probe("answer, then user", (ProbeTurn("It is 2.", (USER,)), ProbeTurn("6", (USER,)))),
    _tool("tool call", ProbeTurn(CALL, (RESULT,)), ProbeTurn("2", (USER,))),
    _tool("text and two calls", ProbeTurn(f"Let me see.\n{CALL}\n{CALL}", (RESULT, RESULT))),
    _tool("tool results and user", ProbeTurn(CALL, (RESULT, USER))),
    Probe("cut turn", (ProbeTurn("The answer, after some", (USER,), "cut"),)),
    Probe("turn ended on another stop token", (ProbeTurn("2", (USER,), "other"),)),
    Probe("turn begins with newlines", (ProbeTurn("\n\n2", (USER,)),)),
    Probe("turn ends with white space", (ProbeTurn("2 \n", (USER,)),)),
    Probe("result with white space", (ProbeTurn("2", ({"role": "user", "content": "\n  ok \n\n"},)),)),
    _tool("thinking, tool call", ProbeTurn(THINK + CALL, (RESULT,)), ProbeTurn(f"{THINK}2", (RESULT,))),
    Probe("thinking, then user", (ProbeTurn(f"{THINK}2", (USER,)),)),
    _tool("thinking, tool, user", ProbeTurn(THINK + CALL, (RESULT,)), ProbeTurn(f"{THINK}2", (USER,))),
    _tool("empty thinking", ProbeTurn(f"<think>\n\n</think>\n\n{CALL}", (RESULT,))),
    _tool("thinking without newlines", ProbeTurn(f"<think>One.</think>{CALL}", (RESULT,))),
    Probe("thinking cut", (ProbeTurn("<think>\nOne and", (USER,), "cut"),)),
)
