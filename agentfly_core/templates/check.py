"""Proving, with a model's own Jinja template, what a chat template does and where the two histories differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentfly_core.templates.codec import TextCodec
from agentfly_core.templates.messages import raw_message
from agentfly_core.templates.probes import PROBES, Probe, ProbeTurn
from agentfly_core.templates.reference import Reference
from agentfly_core.types.protocols import ChatTemplate, TemplateFamily
from agentfly_core.types.tokens import Appended, Generation, History

if TYPE_CHECKING:
    import tokenizers

EXCERPT = 32
"""Characters shown from where two texts part."""
TAG = 16
"""How far to look back for the beginning of a tag."""


@dataclass(frozen=True, slots=True)
class Step:
    """One prompt or observation of a probe.

    Attributes:
        probe: name of the conversation.
        turn: 0 for the prompt, k for the observation after turn k.
        template_history: what template history does there: ``prompt``, ``appended`` or ``new segment``.
        append_equal: whether append history has the ids that the model's own template gives.
        why: the reason, where they differ.
        misfit: what our template does otherwise than the model's own; empty if nothing.
    """

    probe: str
    turn: int
    template_history: str
    append_equal: bool
    why: str = ""
    misfit: str = ""


def check_template(
    family: TemplateFamily, tokenizer: tokenizers.Tokenizer, reference: Reference, **options: Any
) -> list[Step]:
    """Every step of every probe, compared with the model's own template.

    In append history the ids of a chain are kept; in template history they must be the ids of the model's own
    rendering, or its text must extend the text so far.

    Raises:
        UsageError: the template does not fit the tokenizer, or the model's template refuses a probe.
    """
    append = family.bind(tokenizer, history="append", **options)
    template = family.bind(tokenizer, history="template", **options)
    codec = TextCodec(tokenizer)
    return [step for probe in PROBES for step in _Run(append, template, codec, reference, probe).steps()]


class _Run:
    """One probe in both histories beside the reference."""

    def __init__(
        self, append: ChatTemplate, template: ChatTemplate, codec: TextCodec, reference: Reference, probe: Probe
    ) -> None:
        self.append, self.template, self.codec, self.reference, self.probe = append, template, codec, reference, probe
        self.variables = getattr(append, "reference_variables", {})
        self.history = History(list(probe.messages))

    def steps(self) -> Iterator[Step]:
        own = self._own_text()
        kept = self.append.encode_prompt(self.probe.messages, self.probe.tools)
        misfit = _compare(self.codec, kept, self.codec.encode(own))
        yield Step(self.probe.name, 0, "prompt", not misfit, misfit, misfit)
        text, kept_text = own, own
        for number, turn in enumerate(self.probe.turns, 1):
            sampled, end = self._sample(turn)
            self.history.messages.append(raw_message(turn.raw))
            self.history.last, self.history.last_raw = sampled, turn.raw
            step = self.template.extend(self.history, turn.observation, self.probe.tools)
            observed = self.append.encode_observation(turn.observation, after=sampled)
            self.history.messages += turn.observation
            own = self._own_text()
            closed = text + turn.raw + (end or self._end_text())
            misfit = self._misfit(step, own, closed, observed)
            kept = [*kept, *sampled.token_ids, *observed]
            kept_text += turn.raw + end + self.codec.decode(observed)
            equal = kept == self.codec.encode(own)
            why = "" if equal else self._why(kept, kept_text, own)
            shown = "appended" if isinstance(step, Appended) else "new segment"
            yield Step(self.probe.name, number, shown, equal, why, misfit)
            text = own

    def _own_text(self) -> str:
        return self.reference.render(self.history.messages, self.probe.tools, **self.variables)

    def _end_text(self) -> str:
        return self.template.decode(self.template.stop_token_ids[:1])

    def _sample(self, turn: ProbeTurn) -> tuple[Generation, str]:
        ids = self.codec.encode(turn.raw)
        stops = self.template.stop_token_ids
        tail = [] if turn.end == "cut" else [stops[-1 if turn.end == "other" else 0]]
        finish = "length" if turn.end == "cut" else "stop"
        whole = (*ids, *tail)
        return Generation(whole, (0.0,) * len(whole), finish), self.template.decode(tail)  # type: ignore[arg-type]

    def _misfit(self, step: Any, own: str, closed: str, observed: Sequence[int]) -> str:
        """What template history does otherwise than the model's own template; both may only agree."""
        extends = own.startswith(closed)
        if isinstance(step, Appended) != extends:
            return f"template history says {type(step).__name__}, the model's own template would " + (
                "extend" if extends else "rewrite"
            )
        if not isinstance(step, Appended):
            return _compare(self.codec, step.prompt_ids, self.codec.encode(own))
        if list(step.ids) != list(observed):
            return "the two histories encode the same observation otherwise"
        if own != closed + self.codec.decode(step.ids).removeprefix(self._end_text() if self._cut() else ""):
            return _texts(closed + self.codec.decode(step.ids), own)
        return ""

    def _cut(self) -> bool:
        last = self.history.last
        return last is None or not last.token_ids or last.token_ids[-1] not in self.template.stop_token_ids

    def _why(self, kept: Sequence[int], text: str, own: str) -> str:
        if text != own:
            return f"history is rewritten: {_texts(text, own)}"
        return f"same text, other ids: {_compare(self.codec, kept, self.codec.encode(own))}"


def _compare(codec: TextCodec, here: Sequence[int], own: Sequence[int]) -> str:
    """Where two id sequences part, as text and ids; empty if they are equal."""
    if list(here) == list(own):
        return ""
    i = next((i for i, (a, b) in enumerate(zip(here, own, strict=False)) if a != b), min(len(here), len(own)))
    ours, theirs = here[i : i + 8], own[i : i + 8]
    return f"at id {i}: {codec.decode(ours)!r} {list(ours[:3])} here, {codec.decode(theirs)!r} {list(theirs[:3])} there"


def _texts(here: str, own: str) -> str:
    i = next((i for i, (a, b) in enumerate(zip(here, own, strict=False)) if a != b), min(len(here), len(own)))
    tag = own.rfind("<", max(0, i - TAG), i)  # not from the middle of a tag
    i = tag if tag >= 0 and ">" not in own[tag:i] else i
    return f"kept {here[i : i + EXCERPT]!r}, the model's template writes {own[i : i + EXCERPT]!r}"
