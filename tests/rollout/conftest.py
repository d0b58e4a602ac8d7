"""A chat format over characters, and small parts for engines under test."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agentfly_core.agents.tool_calling import ToolCallingAgent
from agentfly_core.backends.scripted import ScriptedBackend, ScriptedTurn
from agentfly_core.rollout import Engine
from agentfly_core.types import (
    Appended,
    AssistantTurn,
    CallError,
    CallErrorKind,
    Generation,
    GenerationRequest,
    History,
    Message,
    NewSegment,
    RewardResult,
    Task,
    ToolCall,
    ToolContext,
    ToolSchema,
    Trajectory,
    text_of,
)

END, ASSISTANT = 0, 1
ROLES = {"system": 2, "user": 3, "tool": 4, "assistant": ASSISTANT}
CONTROL = {0: "<end>", 1: "<assistant>", 2: "<system>", 3: "<user>", 4: "<tool>"}
FIRST_CHARACTER = 8


def ids_of(text: str) -> list[int]:
    """One id a character; control ids have no character."""
    return [ord(c) + FIRST_CHARACTER for c in text]


class CharTemplate:
    """``<role>text<end>`` for each message, then ``<assistant>``. A line ``!name {json}`` of a turn is a call.

    In template history a user message makes earlier assistant text lose what stands in parentheses.
    """

    name = "characters"

    def __init__(self, history: str = "append") -> None:
        self.history: Any = history
        self.encoded = 0
        """Characters encoded so far."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return (END,)

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        listing = ",".join(tool["function"]["name"] for tool in tools)
        ids = [2, *ids_of(listing), END] if listing else []
        return [*ids, *self._render(messages), ASSISTANT]

    def encode_observation(self, messages: Sequence[Message], *, after: Generation) -> list[int]:
        closed = bool(after.token_ids) and after.token_ids[-1] == END
        return [*([] if closed else [END]), *self._render(messages), ASSISTANT]

    def encode_continuation(self, text: str) -> list[int]:
        self.encoded += len(text)
        return ids_of(text)

    def extend(
        self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> Appended | NewSegment:
        assert history.last is not None
        suffix = self.encode_observation(observation, after=history.last)
        if self.history == "append":
            return Appended(suffix)
        messages = [*history.messages, *observation]
        last_user = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
        for index, message in enumerate(messages[:last_user]):
            if message["role"] == "assistant":
                messages[index] = {**message, "content": _without_parentheses(message["content"])}
        whole = self.encode_prompt(messages, tools)
        return Appended(suffix) if whole == [*history.segment_ids, *suffix] else NewSegment(whole)

    def parse(self, generation: Generation) -> AssistantTurn:
        ids = generation.token_ids
        lines = self.decode(ids[:-1] if ids and ids[-1] == END else ids).split("\n")
        calls = tuple(_call(line) for line in lines if line.startswith("!"))
        return AssistantTurn("\n".join(line for line in lines if not line.startswith("!")), calls=calls)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(CONTROL.get(i) or chr(i - FIRST_CHARACTER) for i in ids)

    def _render(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            text = text_of(message["content"])
            self.encoded += len(text)
            ids += [ROLES[message["role"]], *ids_of(text), END]
        return ids


def _without_parentheses(text: str) -> str:
    return text.partition("(")[0] + text.rpartition(")")[2] if "(" in text else text


def _call(line: str) -> ToolCall | CallError:
    name, _, arguments = line[1:].partition(" ")
    try:
        return ToolCall(name, json.loads(arguments or "{}"))
    except ValueError:
        return CallError(CallErrorKind.INVALID_JSON, f"Error: {arguments!r} is not JSON", name)


class _Encoding:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class CharTokenizer:
    """What the scripted backend needs to replay text."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding:
        return _Encoding(ids_of(sequence))


def scripted(*turns: Any, **options: Any) -> ScriptedBackend:
    """Every chain samples these turns; or what the one function says."""
    only = turns[0] if len(turns) == 1 and callable(turns[0]) else list(turns)
    return ScriptedBackend(only, CharTokenizer(), **options)


def backend_turn(content: Any, **options: Any) -> ScriptedTurn:
    return ScriptedTurn(content, **options)


def turn_number(request: GenerationRequest) -> int:
    """How many turns the segment of a request holds already."""
    return list(request.prompt_ids).count(ASSISTANT) - 1


def task(number: int = 0, prompt: str = "Go.", **fields: Any) -> Task:
    return Task(f"t{number}", ({"role": "user", "content": prompt},), fields)


class FixedReward:
    """A reward that calls a function with the trajectory."""

    name = "fixed"
    fields: frozenset[str] = frozenset()

    def __init__(self, function: Callable[[Trajectory, ToolContext], Any] = lambda trajectory, context: 1.0) -> None:
        self._function = function

    async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
        value = self._function(trajectory, context)
        if hasattr(value, "__await__"):
            value = await value
        return RewardResult(value) if isinstance(value, int | float) else value


def engine(backend: Any, **options: Any) -> Engine:
    """An engine of a tool-calling agent over characters."""
    options.setdefault("agent", ToolCallingAgent())
    options.setdefault("template", CharTemplate())
    options.setdefault("reward", FixedReward())
    return Engine(backend=backend, **options)


def play(backend: Any, **options: Any) -> Trajectory:
    """One chain of one task."""
    with engine(backend, **options) as running:
        return running.submit(task(), 0, "g").result(timeout=30)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def kit() -> Any:
    """This module."""
    return sys.modules[__name__]


@pytest.fixture(autouse=True)
def _no_engine_threads_left() -> Iterator[None]:
    before = {t for t in threading.enumerate() if t.name.startswith("agentfly-rollout")}
    yield
    after = {t for t in threading.enumerate() if t.name == "agentfly-rollout"}
    assert after <= before
