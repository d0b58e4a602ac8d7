"""An agent that acts by writing Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentfly_core.agents.opening import opening_messages
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
    UsageError,
    text_of,
)
from agentfly_tools_code.fences import blocks, python_blocks

SYSTEM_PROMPT = """\
Solve the task with the help of Python. To run code, write it in a block:
```python
print(6 * 7)
```
and stop. You are shown what it prints and the value of its last expression. Variables are kept between blocks. \
When you know the answer, give it without a block."""


class CodeAgent:
    """Runs the fenced Python of each turn in one session and shows its output; a turn without code is the answer.

    Several blocks in one turn run in order, as one. A turn that the token limit cut in the middle of its first block
    ends the chain.

    Args:
        system_prompt: first message of a chain whose task has no system message; None explains the notation, the
            empty text adds none.
        tool: name of the tool that runs the code.
        continues: stop the model where its block ends and put the output into the same message, as models do that
            were trained to reason with a tool in the middle of a text. Otherwise the output is a message of its own.
    """

    name: ClassVar[str] = "code"
    show_tools: ClassVar[bool] = False

    def __init__(
        self, *, system_prompt: str | None = None, tool: str = "code_interpreter", continues: bool = False
    ) -> None:
        self.continues = continues
        self.stop_texts = ("```\n",) if continues else ()
        self._system_prompt = SYSTEM_PROMPT if system_prompt is None else system_prompt
        self._tool = tool

    def check_tools(self, tools: Mapping[str, Tool]) -> None:
        """Refuse what could not be used.

        Raises:
            UsageError: the tool that runs the code is missing, or there are others, which nothing could call.
        """
        if set(tools) != {self._tool}:
            have = ", ".join(sorted(tools)) or "none"
            raise UsageError(
                f"agent 'code' acts through the tool {self._tool!r} alone, and agent.tools has {have}: "
                f"write `tools: [{self._tool}]`"
            )

    def start(self, task: Task, observation: Observation | None, tools: Mapping[str, Tool]) -> list[Message]:
        """The opening messages."""
        self.check_tools(tools)
        return opening_messages(task, observation, self._system_prompt or None)

    def decide(self, turn: AssistantTurn, tools: Mapping[str, Tool], context: ToolContext) -> Decision:
        """Run the turn's code, or finish."""
        code = "\n".join(block.rstrip("\n") for block in python_blocks(turn.content))
        if code.strip():
            return CallTools((ToolCall(self._tool, {"code": code}),))
        if any(not closed for *_, closed in blocks(turn.content)) and not turn.cut:
            hint = "The code block is not closed, so nothing was run. End it with ```."
            return Continue(({"role": "user", "content": hint},))
        return Finish(turn.content.strip())

    def observe(self, outcomes: Sequence[ToolOutcome]) -> list[Message]:
        """The output as a fenced block in a user message; images beside it."""
        return [_shown(outcome) for outcome in outcomes]

    def observe_step(self, result: StepResult) -> list[Message]:
        """The observation as a user message."""
        return [{"role": "user", "content": result.observation}]


def _shown(outcome: ToolOutcome) -> Message:
    text = f"```output\n{text_of(outcome.content)}\n```\n"
    if isinstance(outcome.content, str):
        return {"role": "user", "content": text}
    images = [part for part in outcome.content if part["type"] == "image"]
    return {"role": "user", "content": [{"type": "text", "text": text}, *images]}
