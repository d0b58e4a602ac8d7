"""A chat format over characters: tokens that can be read, without a tokenizer or a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.templates import parse_hermes, to_json
from agentfly_core.types import (
    Appended,
    AssistantTurn,
    Generation,
    History,
    HistoryMode,
    Message,
    ToolSchema,
    UsageError,
    text_of,
)

END = 0
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
CONTROL = {END: "<end>", **{id: f"<{role}>" for role, id in ROLES.items()}}
FIRST = 8
"""Id of the first character; control ids have no character, so no text can spell one."""
CHARACTERS = 0x110000


@dataclass(frozen=True, slots=True)
class Encoding:
    """What ``CharacterTokenizer.encode`` gives."""

    ids: list[int]


class CharacterTokenizer:
    """One id a character."""

    def encode(self, sequence: str, *, add_special_tokens: bool = False) -> Encoding:
        """There are no special tokens to add."""
        return Encoding([ord(character) + FIRST for character in sequence])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The characters; control ids are spelled out unless they are to be skipped."""
        shown = (id for id in ids if id not in CONTROL or not skip_special_tokens)
        return "".join(CONTROL.get(id) or _character(id) for id in shown)


class CharacterTemplate:
    """``<role>text<end>`` for each message, ``<assistant>`` to generate; tool calls in hermes form.

    A ``ChatTemplate`` in append history: nothing is ever rewritten.
    """

    name = "characters"
    history: HistoryMode = "append"

    def __init__(self) -> None:
        self._tokenizer = CharacterTokenizer()

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return (END,)

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        listing: list[Message] = [{"role": "system", "content": "".join(f"{to_json(tool)}\n" for tool in tools)}]
        return [*self._render([*(listing if tools else []), *messages]), ROLES["assistant"]]

    def encode_reply(self, message: Message) -> list[int]:
        calls = "".join(
            f"<tool_call>{to_json(entry.get('function', entry))}</tool_call>"
            for entry in message.get("tool_calls") or ()
        )
        return [*self._tokenizer.encode(text_of(message["content"]) + calls).ids, END]

    def encode_observation(self, messages: Sequence[Message], *, after: Generation) -> list[int]:
        closed = after.token_ids[-1:] == (END,)
        return [*([] if closed else [END]), *self._render(messages), ROLES["assistant"]]

    def encode_continuation(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def extend(self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema]) -> Appended:
        if history.last is None:
            raise ValueError("history.last is None: there is no turn to extend")
        return Appended(self.encode_observation(observation, after=history.last))

    def parse(self, generation: Generation) -> AssistantTurn:
        ids = generation.token_ids
        return parse_hermes(self.decode(ids[:-1] if ids[-1:] == (END,) else ids))

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _render(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            if message["role"] not in ROLES:
                raise UsageError(f"role: {message['role']!r} is not one of {', '.join(ROLES)}")
            ids += [ROLES[message["role"]], *self._tokenizer.encode(text_of(message["content"])).ids, END]
        return ids


def _character(id: int) -> str:
    return chr(id - FIRST) if FIRST <= id < FIRST + CHARACTERS else "\ufffd"
