"""A chain's ids as they went through the backend, and the segments made from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from agentfly_core.types import Generation, Segment, TurnSpan


class SegmentBuilder:
    """Collects ids turn by turn. Nothing is ever encoded or dropped here; a turn costs what it adds.

    Attributes:
        ids: ids of the open segment, what the next generation is sent. Only appended to.
        images: images of the open segment, in the order of their placeholders.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.images: list[Any] = []
        self._prompt_len = 0
        self._images_sent = 0
        self._spans: list[TurnSpan] = []
        self._logprobs: list[tuple[float, ...]] = []
        self._closed: list[Segment] = []

    @property
    def index(self) -> int:
        """Index of the open segment."""
        return len(self._closed)

    def open(self, prompt_ids: Sequence[int], images: Iterable[Any] = ()) -> None:
        """Begin a segment with this prompt; the one that was open is finished."""
        self._close()
        self.ids, self.images = list(prompt_ids), list(images)
        self._prompt_len = len(self.ids)
        self._spans, self._logprobs = [], []

    def sampled(self, turn: int, generation: Generation) -> None:
        """Append what was sampled; these are the ids under the mask.

        Raises:
            ValueError: a logprob is not finite: training on it would destroy the weights.
        """
        if not all(map(math.isfinite, generation.logprobs)):
            raise ValueError(f"the backend returned a logprob that is not finite in turn {turn}")
        start = len(self.ids)
        self._images_sent = len(self.images)
        self.ids += generation.token_ids
        self._spans.append(TurnSpan(turn, start, len(self.ids)))
        self._logprobs.append(generation.logprobs)

    def observed(self, ids: Sequence[int], images: Iterable[Any] = ()) -> None:
        """Append an observation's ids."""
        self.ids += ids
        self.images += images

    def finish(self) -> tuple[Segment, ...]:
        """Every segment in which something was sampled, each cut after its last sampled id."""
        self._close()
        self._spans, self._logprobs = [], []
        return tuple(self._closed)

    def _close(self) -> None:
        if not self._spans:
            return
        end = self._spans[-1].end
        mask, logprobs = [0] * end, [0.0] * end
        for span, values in zip(self._spans, self._logprobs, strict=True):
            mask[span.start : span.end] = [1] * len(values)
            logprobs[span.start : span.end] = values
        self._closed.append(
            Segment(
                token_ids=tuple(self.ids[:end]),
                action_mask=tuple(mask),
                logprobs=tuple(logprobs),
                prompt_len=self._prompt_len,
                spans=tuple(self._spans),
                images=tuple(self.images[: self._images_sent]),
            )
        )
