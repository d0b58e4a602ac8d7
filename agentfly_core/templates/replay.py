"""A finished conversation as training sequences: every assistant message counts as sampled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from agentfly_core.types.errors import UsageError
from agentfly_core.types.messages import Message, ToolSchema
from agentfly_core.types.protocols import ChatTemplate
from agentfly_core.types.tokens import Appended, Generation, History, Segment, TurnSpan


def replay(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[Segment]:
    """The segments a rollout would have built, had the model sampled every assistant message. Logprobs are 0.

    What follows the last assistant message is left out.

    Raises:
        UsageError: there is no assistant message, or none before which anything stands, or a message does not fit.
    """
    opening = [*takewhile(lambda m: not _sampled(m), messages)]
    if not opening or len(opening) == len(messages):
        raise UsageError("messages: a conversation needs an assistant message, and something before it")
    history = History(list(opening))
    ids = list(template.encode_prompt(opening, tools))
    segments: list[Segment] = []
    prompt_len, spans, turn, position = len(ids), list[TurnSpan](), 0, len(opening)
    while position < len(messages):
        reply = template.encode_reply(messages[position])
        spans.append(TurnSpan(turn, len(ids), len(ids) + len(reply)))
        ids += reply
        turn, position = turn + 1, position + 1
        observation = [*takewhile(lambda m: not _sampled(m), messages[position:])]
        position += len(observation)
        if position == len(messages):
            break
        raw = template.decode(reply[:-1])
        history.messages.append({"role": "assistant", "content": raw})
        history.segment_ids, history.last_raw = ids, raw
        history.last = Generation(tuple(reply), (0.0,) * len(reply), "stop")
        step = template.extend(history, observation, tools)
        history.messages += observation
        if isinstance(step, Appended):
            ids += step.ids
        else:
            segments.append(_segment(ids, prompt_len, spans))
            ids, spans = list(step.prompt_ids), []
            prompt_len = len(ids)
    return [*segments, _segment(ids, prompt_len, spans)]


def _sampled(message: Message) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _segment(ids: Sequence[int], prompt_len: int, spans: Sequence[TurnSpan]) -> Segment:
    mask = [0] * len(ids)
    for span in spans:
        mask[span.start : span.end] = [1] * (span.end - span.start)
    return Segment(tuple(ids), tuple(mask), (0.0,) * len(ids), prompt_len, tuple(spans))
