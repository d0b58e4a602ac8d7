"""The Qwen formats: rendering and parsing of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentfly_core.templates import Rendered, parse_hermes, to_json
from agentfly_core.templates.messages import calls_of, content_of, role_of
from agentfly_core.types import AssistantTurn, Message, ToolSchema, UsageError
from agentfly_templates_qwen import text as t


@dataclass(frozen=True)
class QwenFormat:
    """What the formats share, and qwen3-instruct-2507 is."""

    name: ClassVar[str] = "qwen3-instruct-2507"
    control: ClassVar[tuple[str, ...]] = (
        *(t.START, t.END, t.END_OF_TEXT, t.CALL_START, t.CALL_END),
        *(t.RESPONSE_START, t.RESPONSE_END),
    )
    stops: ClassVar[tuple[str, ...]] = (t.END, t.END_OF_TEXT)
    rewrites: ClassVar[bool] = False
    default_system: ClassVar[str | None] = None

    @property
    def variables(self) -> Mapping[str, Any]:
        return {}

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Rendered:
        if not messages:
            raise UsageError("messages: a prompt needs at least one message")
        out = Rendered()
        self._system(out, messages, tools)
        self._messages(out, messages, "messages")
        out.own(self._generation())
        return out

    def observation(self, messages: Sequence[Message]) -> Rendered:
        out = Rendered()
        out.own("\n")
        self._messages(out, messages, "observation", opening=False)
        out.own(self._generation())
        return out

    def reply(self, message: Message, where: str) -> Rendered:
        out = Rendered()
        if role_of(message, where) != "assistant":
            raise UsageError(f"{where}.role: must be assistant, got {message['role']!r}")
        self._reply(out, message, where)
        return out

    def parse(self, text: str) -> AssistantTurn:
        return parse_hermes(text)

    def _system(self, out: Rendered, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> None:
        first = messages[0]
        given = role_of(first, "messages[0]") == "system"
        content = content_of(first, "messages[0]") if given else self.default_system
        if content is None and not tools:
            return
        out.own(f"{t.START}system\n")
        if content is not None:
            out.content(content)
        if tools:
            out.own(t.TOOLS_HEAD if content is None else f"\n\n{t.TOOLS_HEAD}")
            for tool in tools:
                out.own("\n")
                out.content(to_json(tool))
            out.own(t.TOOLS_TAIL)
        out.own(f"{t.END}\n")

    def _messages(self, out: Rendered, messages: Sequence[Message], where: str, *, opening: bool = True) -> None:
        roles = [role_of(message, f"{where}[{i}]") for i, message in enumerate(messages)]
        query = _last_query(messages, where) if self.rewrites else -1
        for i, (role, message) in enumerate(zip(roles, messages, strict=True)):
            here = f"{where}[{i}]"
            if role == "tool":
                self._tool_result(out, content_of(message, here), roles[i - 1 : i] != ["tool"], roles[i + 1 : i + 2])
            elif role == "assistant":
                out.own(t.GENERATION)
                self._assistant(out, message, here, recent=i > query, last=i == len(messages) - 1)
                out.own(f"{t.END}\n")
            elif role == "user" or i > 0 or not opening:
                out.own(f"{t.START}{role}\n")
                out.content(content_of(message, here))
                out.own(f"{t.END}\n")

    def _tool_result(self, out: Rendered, content: str, first: bool, following: list[str]) -> None:
        """Results in a row share one user message."""
        out.own(f"{t.START}user\n{t.RESPONSE_START}\n" if first else f"\n{t.RESPONSE_START}\n")
        out.content(content)
        out.own(f"\n{t.RESPONSE_END}" if following == ["tool"] else f"\n{t.RESPONSE_END}{t.END}\n")

    def _assistant(self, out: Rendered, message: Message, where: str, *, recent: bool, last: bool) -> None:
        """An assistant message within a conversation; ``recent``: no user message follows it."""
        self._reply(out, message, where)

    def _reply(self, out: Rendered, message: Message, where: str) -> None:
        """Content and calls; a message that was sampled has only content, its raw text."""
        content = content_of(message, where)
        out.mixed(content, t.OWN_TAGS)
        self._calls(out, message, where, after_content=bool(content))

    def _calls(self, out: Rendered, message: Message, where: str, *, after_content: bool) -> None:
        for k, (name, arguments) in enumerate(calls_of(message, where)):
            out.own(("\n" if k or after_content else "") + f'{t.CALL_START}\n{{"name": "')
            out.content(name)
            out.own('", "arguments": ')
            out.content(self._arguments(arguments, f"{where}.tool_calls[{k}].arguments"))
            out.own(f"}}\n{t.CALL_END}")

    def _arguments(self, arguments: Any, where: str) -> str:
        return arguments if isinstance(arguments, str) else to_json(arguments)

    def _generation(self) -> str:
        return t.GENERATION


@dataclass(frozen=True)
class Qwen25Format(QwenFormat):
    """qwen2.5: a default system prompt; the tags of tool results are ordinary text to its tokenizer."""

    name: ClassVar[str] = "qwen2.5"
    control: ClassVar[tuple[str, ...]] = (t.START, t.END, t.END_OF_TEXT, t.CALL_START, t.CALL_END)
    default_system: ClassVar[str | None] = t.DEFAULT_SYSTEM

    def _arguments(self, arguments: Any, where: str) -> str:
        if isinstance(arguments, str):
            raise UsageError(f"{where}: this template would write the text as a JSON string; give an object")
        return to_json(arguments)


@dataclass(frozen=True)
class Qwen3Format(QwenFormat):
    """qwen3: a thinking block, which the template rewrites in earlier turns.

    Args:
        thinking: False puts an empty block into every generation prompt.
    """

    name: ClassVar[str] = "qwen3"
    control: ClassVar[tuple[str, ...]] = (*QwenFormat.control, t.THINK_START, t.THINK_END)
    rewrites: ClassVar[bool] = True
    thinking: bool = True

    @property
    def variables(self) -> Mapping[str, Any]:
        return {} if self.thinking else {"enable_thinking": False}

    def parse(self, text: str) -> AssistantTurn:
        return parse_hermes(text, reasoning=True)

    def _assistant(self, out: Rendered, message: Message, where: str, *, recent: bool, last: bool) -> None:
        reasoning, content = _split_thinking(message, where)
        thinking = recent and bool(reasoning or last)
        self._thinking_and_rest(out, reasoning if thinking else None, content, message, where)

    def _reply(self, out: Rendered, message: Message, where: str) -> None:
        reasoning = _given_reasoning(message, where)
        if reasoning is not None and not self.thinking:
            raise UsageError(f"{where}.reasoning_content: thinking is switched off (option thinking: false)")
        self._thinking_and_rest(out, reasoning, content_of(message, where), message, where)

    def _thinking_and_rest(
        self, out: Rendered, reasoning: str | None, content: str, message: Message, where: str
    ) -> None:
        if reasoning is not None:
            out.own(f"{t.THINK_START}\n")
            out.mixed(reasoning.strip("\n"), t.OWN_TAGS)
            out.own(f"\n{t.THINK_END}\n\n")
            out.mixed(content.lstrip("\n"), t.OWN_TAGS)
        else:
            out.mixed(content, t.OWN_TAGS)
        self._calls(out, message, where, after_content=bool(content))

    def _generation(self) -> str:
        return t.GENERATION if self.thinking else t.GENERATION + t.NO_THINKING


def _given_reasoning(message: Message, where: str) -> str | None:
    reasoning: Any = message.get("reasoning_content")
    if reasoning is not None and not isinstance(reasoning, str):
        raise UsageError(f"{where}.reasoning_content: must be text, got {type(reasoning).__name__}")
    return reasoning


def _split_thinking(message: Message, where: str) -> tuple[str, str]:
    """Reasoning and the rest, cut as the template cuts: text between, before and after blocks is lost."""
    content = content_of(message, where)
    if (reasoning := _given_reasoning(message, where)) is not None:
        return reasoning, content
    if t.THINK_END not in content:
        return "", content
    parts = content.split(t.THINK_END)
    return parts[0].rstrip("\n").split(t.THINK_START)[-1].lstrip("\n"), parts[-1].lstrip("\n")


def _last_query(messages: Sequence[Message], where: str) -> int:
    """Index of the last real user message; thinking before it is dropped. The last index where there is none."""
    for i in range(len(messages) - 1, -1, -1):
        if messages[i]["role"] == "user":
            content = content_of(messages[i], f"{where}[{i}]")
            if not (content.startswith(t.RESPONSE_START) and content.endswith(t.RESPONSE_END)):
                return i
    return len(messages) - 1
