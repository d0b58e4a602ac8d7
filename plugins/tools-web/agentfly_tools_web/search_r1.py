"""The agent type ``search-r1``: searching in the middle of a thought (Jin et al., arXiv 2503.09516)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentfly_core.agents.opening import opening_messages
from agentfly_core.agents.tool_calling import resolve
from agentfly_core.types import (
    AssistantTurn,
    CallTools,
    Continue,
    Decision,
    Finish,
    Message,
    Observation,
    StepResult,
    Task,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    UnknownName,
    UsageError,
    text_of,
)

INSTRUCTIONS = (
    "Answer the user's question. Whenever you have learned something new, first reason between <think> and </think>. "
    "If you lack knowledge, search: write a query between <search> and </search>, and what is found appears between "
    "<information> and </information>. Search as often as you need. Once you know the answer, write it, short and "
    "without explanation, between <answer> and </answer>, for example <answer>Lima</answer>."
)
"""The default system prompt."""
CORRECTION = (
    "\nThat was no action. To search, write a query between <search> and </search>; to finish, write the answer "
    "between <answer> and </answer>.\n"
)


class SearchR1Agent:
    """Lets the model search within its answer: one assistant message holds thoughts, searches and what they found.

    A turn ends with ``</search>`` or ``</answer>``. The first tag in it that is closed decides, as in the paper's
    reference: ``<search>`` runs the search tool, whose result goes on within the message between ``<information>``
    tags, and ``<answer>`` finishes. Without one, a correction goes on within the message. A turn that the token limit
    cut before an action was whole ends the chain without an answer.

    Args:
        system_prompt: first message of a chain whose task has no system message; explains the tags.
        tool: name of the search tool, where several of the tools take just a ``query``.
    """

    name: ClassVar[str] = "search-r1"
    show_tools: ClassVar[bool] = False
    continues: ClassVar[bool] = True
    stop_texts: ClassVar[tuple[str, ...]] = ("</search>", "</answer>")

    def __init__(self, *, system_prompt: str = INSTRUCTIONS, tool: str | None = None) -> None:
        self._system_prompt = system_prompt
        self._tool = tool

    def check_tools(self, tools: Mapping[str, Tool]) -> None:
        """Refuse tools among which there is not just one to search with."""
        self._search_tool(tools)

    def start(self, task: Task, observation: Observation | None, tools: Mapping[str, Tool]) -> list[Message]:
        """The opening messages."""
        self.check_tools(tools)
        return opening_messages(task, observation, self._system_prompt)

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        """Search, finish, or correct. A template that sets thoughts apart may have found the tags in them."""
        action = first_action((turn.reasoning or "") + turn.content)
        if action is None:
            return Finish("") if turn.cut else Continue(({"role": "user", "content": CORRECTION},))
        name, content = action
        if name == "answer":
            return Finish(content)
        call = ToolCall(self._search_tool(tools).name, {"query": content})
        return CallTools((resolve(call, tools),))

    def observe(self, outcomes: Sequence[ToolOutcome]) -> list[Message]:
        """What the search found, or why it failed."""
        return [_information(text_of(outcome.content)) for outcome in outcomes]

    def observe_step(self, result: StepResult) -> list[Message]:
        """The observation in the same form."""
        return [_information(text_of(result.observation))]

    def _search_tool(self, tools: Mapping[str, Tool]) -> Tool:
        fitting = {name: tool for name, tool in tools.items() if _takes_a_query(tool)}
        if self._tool is not None:
            if self._tool not in fitting:
                raise UnknownName("agent.options.tool: search tool", self._tool, fitting)
            return fitting[self._tool]
        if len(fitting) == 1:
            return next(iter(fitting.values()))
        if fitting:
            raise UsageError(
                f"agent.tools: the agent 'search-r1' can search with {' and '.join(sorted(fitting))}: "
                "name one in agent.options.tool, or leave the others out"
            )
        raise UsageError(
            "agent.tools: the agent 'search-r1' needs a tool that takes a `query` and nothing else it must be given; "
            "add retrieve or web_search"
        )


def first_action(text: str) -> tuple[str, str] | None:
    """``search`` or ``answer``, whichever opens first and is closed later, and what stands in it; in linear time."""
    found = []
    for name in ("search", "answer"):
        opening, closing = f"<{name}>", f"</{name}>"
        start = text.find(opening)
        end = text.find(closing, start + len(opening)) if start >= 0 else -1
        if end >= 0:  # else no later opening is closed either
            found.append((start, name, text[start + len(opening) : end].strip()))
    return min(found)[1:] if found else None


def _takes_a_query(tool: Tool) -> bool:
    """Whether a query is all that the tool must be given."""
    properties, required = tool.parameters.get("properties", {}), tool.parameters.get("required", ())
    return "query" in properties and set(required) <= {"query"}


def _information(text: str) -> Message:
    return {"role": "user", "content": f"\n\n<information>{text.strip()}</information>\n\n"}
