"""A chat template over a format: everything about tokens that does not depend on which model it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from agentfly_core.templates.codec import Rendered, TextCodec
from agentfly_core.types.errors import UsageError
from agentfly_core.types.messages import AssistantTurn, Message, ToolSchema
from agentfly_core.types.protocols import HistoryMode
from agentfly_core.types.tokens import Appended, Generation, History, NewSegment

if TYPE_CHECKING:
    import tokenizers


class Format(Protocol):
    """How a model writes a conversation. Renders and parses text; knows no tokenizer."""

    @property
    def name(self) -> str: ...
    @property
    def control(self) -> Sequence[str]:
        """Control tokens it cannot do without."""
        ...

    @property
    def stops(self) -> Sequence[str]:
        """Control tokens that end a turn; the first is the one the format writes."""
        ...

    @property
    def rewrites(self) -> bool:
        """Whether a longer conversation may render earlier messages otherwise."""
        ...

    @property
    def variables(self) -> Mapping[str, Any]:
        """What the model's own Jinja template is to be given for this format's options."""
        ...

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Rendered:
        """The whole conversation with the generation prompt."""
        ...

    def observation(self, messages: Sequence[Message]) -> Rendered:
        """What follows a turn's end token, to the next generation prompt."""
        ...

    def reply(self, message: Message, where: str) -> Rendered:
        """An assistant message as the model would sample it after the generation prompt, without end token."""
        ...

    def parse(self, text: str) -> AssistantTurn:
        """A turn's text in parts. Never raises."""
        ...


class TextTemplate:
    """A ``ChatTemplate`` of one format, tokenizer and history mode. Safe to share between threads.

    Raises:
        UsageError: the tokenizer lacks a control token of the format, or ``history`` is no history mode.
    """

    def __init__(self, format: Format, tokenizer: tokenizers.Tokenizer, history: HistoryMode = "append") -> None:
        if history not in get_args(HistoryMode):
            raise UsageError(f"history: {history!r} is not one of {', '.join(get_args(HistoryMode))}")
        self.name = format.name
        self.history: HistoryMode = history
        self.format = format
        try:
            self.codec = TextCodec(tokenizer, format.control)
        except UsageError as error:
            raise UsageError(f"template {format.name!r} does not fit: {error}") from error
        self._stops = tuple(self.codec.id(text) for text in format.stops)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self._stops

    @property
    def reference_variables(self) -> Mapping[str, Any]:
        """What the model's own Jinja template takes for the same options, for ``check_template``."""
        return self.format.variables

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        return self.codec.encode(self.format.prompt(messages, tools))

    def encode_reply(self, message: Message) -> list[int]:
        """Ids of an assistant message as if the model had sampled it, end token included: what SFT trains on."""
        return [*self.codec.encode(self.format.reply(message, "message")), self._stops[0]]

    def encode_observation(self, messages: Sequence[Message], *, after: Generation) -> list[int]:
        return self._encode_after(self.format.observation(messages), after)

    def encode_continuation(self, text: str) -> list[int]:
        return self.codec.encode_content(text)

    def extend(
        self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> Appended | NewSegment:
        if history.last is None:
            raise ValueError("history.last is None: there is no turn to extend")
        suffix = self.format.observation(observation)
        if self.history == "append" or self._extends(history, observation, tools, suffix):
            return Appended(self._encode_after(suffix, history.last))
        return NewSegment(self.encode_prompt([*history.messages, *observation], tools))

    def parse(self, generation: Generation) -> AssistantTurn:
        ids = generation.token_ids
        return self.format.parse(self.decode(ids[:-1] if self._closed(generation) else ids))

    def decode(self, ids: Sequence[int]) -> str:
        return self.codec.decode(ids)

    def _closed(self, generation: Generation) -> bool:
        """Whether the turn's end token was sampled. The ids decide: a host may stop on tokens of its own."""
        return bool(generation.token_ids) and generation.token_ids[-1] in self._stops

    def _encode_after(self, suffix: Rendered, after: Generation) -> list[int]:
        if not self._closed(after):
            # The end token joins the same call, in front of the delimiters.
            suffix.pieces.insert(0, self.format.stops[0])
            suffix.contents = [i + 1 for i in suffix.contents]
        return self.codec.encode(suffix)

    def _extends(
        self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema], suffix: Rendered
    ) -> bool:
        """Whether the format renders the longer conversation as the old prompt, the turn and the observation.

        Compared as text: the open segment is the old prompt's rendering and the sampled ids, whose text is in
        ``history.messages``. So nothing is decoded, and ids that are no canonical encoding do not matter.
        """
        assert history.last is not None
        if self._closed(history.last) and history.last.token_ids[-1] != self._stops[0]:
            return False
        if not self.format.rewrites:
            return True
        *before, turn = history.messages
        old = self.format.prompt(before, tools).text
        new = self.format.prompt([*history.messages, *observation], tools).text
        return new == f"{old}{turn['content']}{self.format.stops[0]}{suffix.text}"
