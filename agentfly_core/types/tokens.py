"""Token-level data: what goes into a backend, what comes out, and how a chain keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "abort"]
"""``stop``: a stop token was sampled (it is the last id), or a stop text completed. ``length``: the limit cut the turn.
``abort``: cancelled."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one turn.

    Attributes:
        temperature: logits are divided by it; 0 takes the most likely token.
        top_p: nucleus mass kept, 1 keeps all. Training recipes refuse less than 1.
        top_k: number of tokens kept, 0 keeps all. Training recipes refuse more than 0.
        max_tokens: limit of this one turn, in tokens.
        stop_token_ids: sampling any of these ends the turn; the id itself is kept.
        seed: with the same seed, prompt and weights the same ids are sampled, whatever else is in the batch
            (up to floating-point ties). None draws a fresh one.
        stop: the turn ends once one of these texts appears in the decoded text of the sampled ids, control tokens
            spelled out. It may span ids and end inside one: whole ids are kept, the last one too. The backend needs
            a tokenizer then.
        forbidden_token_ids: never sampled: their logits count as -inf. Logprobs stay those of the whole distribution.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    forbidden_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 keeps all), got {self.top_k}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens}")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop must be texts, none of them empty, got {self.stop!r:.80}")
        if not all(type(id) is int and id >= 0 for id in self.forbidden_token_ids):
            raise ValueError(f"forbidden_token_ids must be token ids >= 0, got {self.forbidden_token_ids!r:.80}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One turn to sample.

    Attributes:
        prompt_ids: all ids of the segment so far; sent to the model as they are.
        sampling: how to sample.
        images: pixel data in the order of their placeholders in ``prompt_ids``.
        chain_key: identifies the chain; a backend may use it to reuse cached prefixes and to order a wave.
    """

    prompt_ids: Sequence[int]
    sampling: SamplingParams
    images: tuple[Any, ...] = ()
    chain_key: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What a backend sampled.

    Attributes:
        token_ids: sampled ids, the stop token included if it was sampled.
        logprobs: one per id, natural log, of the distribution after temperature and before top-p, top-k and forbidden
            ids (0 temperature: of the untempered distribution).
        finish_reason: why it ended.
        weight_version: version of the weights that sampled the first id.
        last_weight_version: version that sampled the last id; differs if weights changed in between.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: int = 0
    last_weight_version: int = 0

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token ids but {len(self.logprobs)} logprobs")


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """Where a turn's sampled tokens lie in its segment: ids ``start`` to ``end`` (half open)."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One contiguous training sequence of a chain, byte for byte what went through the backend.

    All sequences have length T. ``action_mask`` is 1 exactly on sampled tokens, ``logprobs`` is 0.0 elsewhere.
    It ends with the last sampled token: an observation after it that no turn followed is not kept.
    """

    token_ids: tuple[int, ...]
    action_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_len: int
    spans: tuple[TurnSpan, ...]
    images: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.action_mask) == len(self.logprobs):
            raise ValueError("token_ids, action_mask and logprobs differ in length")
        covered, end = 0, 0
        for span in self.spans:
            if not end <= span.start <= span.end or not all(self.action_mask[span.start : span.end]):
                raise ValueError(f"action_mask and spans disagree in turn {span.turn}")
            covered, end = covered + span.end - span.start, span.end
        if sum(self.action_mask) != covered or end > len(self.token_ids):
            raise ValueError("action_mask and spans disagree")
        if not 0 <= self.prompt_len <= len(self.token_ids):
            raise ValueError(f"prompt_len {self.prompt_len} lies outside of {len(self.token_ids)} tokens")


@dataclass(frozen=True, slots=True)
class Appended:
    """The observation extends the segment: append ``ids`` and sample on."""

    ids: list[int]


@dataclass(frozen=True, slots=True)
class NewSegment:
    """The template rewrites history: sample on from ``prompt_ids`` in a new segment."""

    prompt_ids: list[int]


@dataclass(slots=True)
class History:
    """What a template needs to extend a chain: the opening messages and all that followed.

    Attributes:
        messages: opening messages, then for each turn the assistant message as sampled (raw text) and its
            observation's messages.
        segment_ids: ids of the open segment, prompt included, sampled ids of the last turn included.
        last: the generation just sampled, whose observation is to be encoded.
        last_raw: its decoded text without the end token.
    """

    messages: list[Any] = field(default_factory=list)
    segment_ids: list[int] = field(default_factory=list)
    last: Generation | None = None
    last_raw: str = ""
