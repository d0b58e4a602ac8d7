"""Conversations and turns that a chat template must survive."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agentfly_core.templates.probes import CALL, TOOL, USER
from agentfly_core.types import Generation, Message, ToolSchema

if TYPE_CHECKING:
    import tokenizers

PIECES = (
    *("{", "}", "[", "]", '"', ":", ",", "\\", "\n", " ", "name", "arguments", '"name": "f"', '"arguments": {'),
    *('"x": "\\ud800"', "NaN", "1e999", "9" * 5000, "[" * 3000, '{"a":' * 1500, "\u0301", "\U0001f642"),
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "<|python_tag|>", CALL),
)
"""What hostile turns are made of, besides the tokenizer's control tokens."""


def hostile_turns(tokenizer: tokenizers.Tokenizer, end: int, rng: random.Random, examples: int) -> Iterator[Generation]:
    """Turns that no sane model writes: random ids, and control tokens amid broken JSON."""
    pieces = [*PIECES, *(token.content for token in tokenizer.get_added_tokens_decoder().values())]
    yield Generation((), (), "length")
    yield Generation((end,), (0.0,), "stop")
    for piece in pieces:
        yield sampled(tokenizer, piece, end)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    for number in range(examples):
        if number % 2:
            ids = [rng.randrange(size) for _ in range(rng.randrange(1, 30))]
            yield Generation(tuple(ids), (0.0,) * len(ids), "length")
        else:
            text = "".join(rng.choices(pieces, k=rng.randrange(1, 12)))
            yield sampled(tokenizer, text, end if rng.random() < 0.5 else None)


def sampled(tokenizer: tokenizers.Tokenizer, text: str, end: int | None) -> Generation:
    """A turn of this text, ended on a stop token or (None) cut."""
    ids = [*tokenizer.encode(text, add_special_tokens=False).ids, *([] if end is None else [end])]
    return Generation(tuple(ids), (0.0,) * len(ids), "length" if end is None else "stop")


def with_content(text: str) -> Iterator[tuple[str, list[Message], list[ToolSchema]]]:
    """Prompts that hold a text, in each place of one."""
    yield "user", [{"role": "user", "content": text}], []
    yield "system", [{"role": "system", "content": text}, USER], []
    function = {**TOOL["function"], "description": text}
    yield "tool description", [USER], [{"type": "function", "function": function}]
    shots: list[Message] = [USER, {"role": "assistant", "content": "2"}, {"role": "tool", "content": text}]
    yield "tool", shots, [TOOL]


def is_json(value: Any) -> bool:
    """Whether it survives being written as JSON in UTF-8."""
    try:
        json.dumps(dict(value), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True
