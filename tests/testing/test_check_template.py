"""``check_template`` passes the project's formats and finds what is wrong with others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

tokenizers = pytest.importorskip("tokenizers")

from agentfly_core.templates import Rendered, TextTemplate, parse_hermes, to_json  # noqa: E402
from agentfly_core.templates.messages import calls_of, content_of, role_of  # noqa: E402
from agentfly_core.testing import check_template  # noqa: E402
from agentfly_core.types import Appended, AssistantTurn, NewSegment, ToolCall, UsageError  # noqa: E402

START, END = "<|start|>", "<|end|>"


@pytest.fixture(scope="module")
def tokenizer():
    """Two control tokens, bytes, and merges of newlines: with them the borders of contents show."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[START, END],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(["user\n\nok", "tool\n\nok", "ok\n\n"] * 3, trainer)
    return made


class Format:
    """``<|start|>role``, newline, text, ``<|end|>``, newline; calls in hermes form."""

    name = "small"
    control = (START, END)
    stops = (END,)
    rewrites = False
    variables: dict[str, Any] = {}  # noqa: RUF012

    def prompt(self, messages, tools=()):
        out = Rendered()
        for tool in tools:
            out.own(f"{START}tools\n")
            out.content(to_json(tool))
            out.own(f"{END}\n")
        return self._messages(out, messages)

    def observation(self, messages):
        out = Rendered()
        out.own("\n")
        return self._messages(out, messages)

    def reply(self, message, where):
        out = Rendered()
        out.content(content_of(message, where))
        for name, arguments in calls_of(message, where):
            out.content(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")
        return out

    def parse(self, text):
        return parse_hermes(text)

    def _messages(self, out, messages):
        for i, message in enumerate(messages):
            out.own(f"{START}{role_of(message, f'messages[{i}]')}\n")
            out.content(content_of(message, f"messages[{i}]"))
            out.own(f"{END}\n")
        out.own(f"{START}assistant\n")
        return out


@dataclass(frozen=True)
class Family:
    """Binds a template class, good unless one is given that is not."""

    template: type[TextTemplate] = TextTemplate
    format: type[Format] = Format
    name: str = "small"

    def bind(self, tokenizer, *, history="append", **options):
        if options:
            raise UsageError(f"no option {', '.join(options)}")
        return self.template(self.format(), tokenizer, history)


def test_a_good_format_passes(tokenizer):
    check_template(Family(), tokenizer)


def test_a_family_that_accepts_anything(tokenizer, found):
    class Careless(Family):
        def bind(self, tokenizer, *, history="append", **options):
            return TextTemplate(Format(), tokenizer, "template" if history == "template" else "append")

    with found("it accepts an unknown history", "it accepts an unknown option"):
        check_template(Careless(), tokenizer)


def test_a_family_that_needs_what_it_is_not_given(tokenizer, found):
    class Picky(Family):
        def bind(self, tokenizer, *, thinking, history="append"):
            return TextTemplate(Format(), tokenizer, history)

    with found("it raised TypeError"):
        check_template(Picky(), tokenizer)


class ContentsAlone(TextTemplate):
    """Encodes every piece by itself."""

    def encode_observation(self, messages, *, after):
        rendered = self.format.observation(messages)
        tail = [i for piece in rendered.pieces for i in self.codec.encode(piece)]
        return [*([] if self._closed(after) else self._stops[:1]), *tail]


class Injectable(TextTemplate):
    """Encodes contents as if they were its own."""

    def encode_prompt(self, messages, tools=()):
        return self.codec.encode(self.format.prompt(messages, tools).text)


class InjectableWithin(TextTemplate):
    def encode_continuation(self, text):
        return self.codec.encode(text)


class Delimiting(TextTemplate):
    """Opens a message where one goes on."""

    def encode_continuation(self, text):
        return self.codec.encode(self.format.observation([{"role": "user", "content": text}]))


class NeverCloses(TextTemplate):
    def encode_observation(self, messages, *, after):
        return self.codec.encode(self.format.observation(messages))


class BelievesTheReason(TextTemplate):
    def _closed(self, generation):
        return generation.finish_reason == "stop"


class Raising(TextTemplate):
    def parse(self, generation):
        text = self.decode(generation.token_ids).removesuffix(END)
        return AssistantTurn(text, calls=(ToolCall("f", json.loads(text)),) if "{" in text else ())


class Surrogates(TextTemplate):
    def parse(self, generation):
        turn = super().parse(generation)
        return replace(turn, calls=(ToolCall("", {"x": float("nan")}),))


class Reencoding(TextTemplate):
    """Rewrites nothing, but says so."""

    def extend(self, history, observation, tools):
        return NewSegment(self.encode_prompt([*history.messages, *observation], tools))


class AlwaysAppends(TextTemplate):
    """Renders earlier turns otherwise, and appends all the same."""

    def extend(self, history, observation, tools):
        return Appended(self.encode_observation(observation, after=history.last))


class Shortening(Format):
    def prompt(self, messages, tools=()):
        last = max((i for i, m in enumerate(messages) if isinstance(m, dict) and m.get("role") == "user"), default=0)
        kept = [m for i, m in enumerate(messages) if i >= last or m.get("role") != "assistant"]
        return super().prompt(kept, tools)


class Forgetful(Format):
    """Leaves tool descriptions out."""

    def prompt(self, messages, tools=()):
        return super().prompt(messages)


class NoEnd(TextTemplate):
    def encode_reply(self, message):
        return super().encode_reply(message)[:-1]


class NoCalls(Format):
    """Writes calls, but reads none."""

    def parse(self, text):
        return AssistantTurn(text)


class Strings(TextTemplate):
    @property
    def stop_token_ids(self):
        return (END,)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (Family(ContentsAlone), "are not those of the whole text"),
        (Family(Injectable), "the text of a control token becomes one in user content"),
        (Family(InjectableWithin), "the text of a control token becomes one in a continuation"),
        (Family(Delimiting), "'zebra' became "),
        (Family(NeverCloses), "a cut turn is not closed, or a closed one twice"),
        (Family(BelievesTheReason), "the finish reason decides where the ids should"),
        (Family(Raising), "it raised JSONDecodeError"),
        (Family(Surrogates), "a call is not fit to be run"),
        (Family(Reencoding), "append history gave NewSegment"),
        (Family(AlwaysAppends, Shortening), "template history appends where the format renders"),
        (Family(format=Forgetful), "the tool description content is not in the prompt"),
        (Family(NoEnd), "it does not end a turn"),
        (Family(format=NoCalls), "parse reads AssistantTurn("),
        (Family(Strings), "they are ('<|end|>',)"),
    ],
    ids=lambda value: value.template.__name__ if isinstance(value, Family) else "",
)  # fmt: skip
def test_broken_templates_are_found(family, text, tokenizer, found):
    with found(text):
        check_template(family, tokenizer)


def test_messages_that_are_none(tokenizer, found):
    class Careless(Format):
        def _messages(self, out, messages):
            for message in messages:
                out.own(f"{START}{message['role']}\n")
                out.content(message["content"])
                out.own(f"{END}\n")
            out.own(f"{START}assistant\n")
            return out

    with found("a message that is none raised KeyError"):
        check_template(Family(format=Careless), tokenizer)


def test_deviations_from_the_models_own_template(tokenizer, found):
    pytest.importorskip("jinja2")
    from agentfly_core.templates.reference import Reference

    source = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant\n"
    with found("here, "):  # the reference lists no tools
        check_template(Family(), tokenizer, reference=Reference(source))
