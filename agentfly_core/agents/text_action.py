"""An agent whose text is the action: for worlds that are played in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias, get_args

from agentfly_core.agents.opening import opening_messages
from agentfly_core.types import (
    AssistantTurn,
    Continue,
    Decision,
    Finish,
    Message,
    Observation,
    StepEnvironment,
    StepResult,
    Task,
    Tool,
    ToolContext,
    ToolOutcome,
    UnknownName,
    UsageError,
)

ActionFrom: TypeAlias = Literal["text", "last_line", "tag"]


class TextActionAgent:
    """Sends the action in a turn's text to the environment and hands its observation back.

    A turn without an action is answered with a hint. A turn that the token limit cut ends the chain unless its action
    is complete, which only a closed tag shows.

    Args:
        system_prompt: first message of a chain whose task has no system message; None adds none.
        action: where the action stands: the whole ``text``, its ``last_line``, or the last ``tag``.
        tag: name of the tag: ``<action>open door</action>``.
    """

    name: ClassVar[str] = "text-action"
    show_tools: ClassVar[bool] = False

    def __init__(self, *, system_prompt: str | None = None, action: ActionFrom = "text", tag: str = "action") -> None:
        if action not in get_args(ActionFrom):
            raise UnknownName("value of the text-action agent's option 'action':", str(action), get_args(ActionFrom))
        if not tag.strip():
            raise UsageError("the text-action agent's option 'tag' is empty; give it a name such as 'action'")
        self._system_prompt = system_prompt
        self._action = action
        self._tag = tag

    def start(self, task: Task, observation: Observation | None, tools: Mapping[str, Tool]) -> list[Message]:
        """The opening messages."""
        return opening_messages(task, observation, self._system_prompt)

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        """Step with the turn's action."""
        action = self._find(turn.content)
        if turn.cut and (self._action != "tag" or not action):
            return Finish(turn.content.strip())
        return StepEnvironment(action) if action else Continue(({"role": "user", "content": self._hint()},))

    def observe(self, outcomes: Sequence[ToolOutcome]) -> list[Message]:
        """Results of tools as user messages."""
        return [{"role": "user", "content": outcome.content} for outcome in outcomes]

    def observe_step(self, result: StepResult) -> list[Message]:
        """The observation as a user message."""
        return [{"role": "user", "content": result.observation}]

    def _find(self, text: str) -> str:
        if self._action == "tag":
            opening, closing = f"<{self._tag}>", f"</{self._tag}>"
            before, found, _ = text.rpartition(closing)
            return before.rpartition(opening)[2].strip() if found and opening in before else ""
        text = text.strip()
        return text.rpartition("\n")[2].strip() if self._action == "last_line" else text

    def _hint(self) -> str:
        if self._action == "tag":
            return f"No action found. Write it as <{self._tag}>your action</{self._tag}>."
        return "No action found. Write one action."
