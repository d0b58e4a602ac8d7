"""Whether a chat template keeps the token contract (``types.ChatTemplate``)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentfly_core.templates.probes import PROBES, RESULT, USER
from agentfly_core.testing.hostile import hostile_turns, is_json, sampled, with_content
from agentfly_core.testing.report import Report, show, show_error
from agentfly_core.types import (
    Appended,
    AssistantTurn,
    CallError,
    ChatTemplate,
    Generation,
    History,
    Message,
    NewSegment,
    TemplateFamily,
    ToolCall,
    ToolSchema,
    UsageError,
)

if TYPE_CHECKING:
    import tokenizers

    from agentfly_core.templates.reference import Reference

EDGES = ("\n\nok\n", "  ok  ", "\tok", "ok\r\n", "", "\u0301ok")
"""Contents whose ends may merge with the delimiters around them."""
ONE_CALL = "encode contents in one tokenizer call with the delimiters around them: tokens merge across the border"
INJECTION = "encode contents so that the text of a control token stays text (TextCodec and Rendered do)"


def check_template(
    family: TemplateFamily,
    tokenizer: tokenizers.Tokenizer,
    *,
    options: Mapping[str, Any] | None = None,
    reference: Reference | None = None,
    examples: int = 60,
    seed: int = 0,
) -> None:
    """Check a template family over a tokenizer, in both histories.

    Args:
        options: of ``bind``.
        reference: the model's own Jinja template; with it, every deviation from it is a violation too.
        examples: random turns to parse.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report(f"template {getattr(family, 'name', family)!r}")
    given = dict(options or {})
    bound: dict[str, ChatTemplate] = {}
    for history in ("append", "template"):
        with report.guard(f"bind(tokenizer, history={history!r})", "accept both histories over a tokenizer that fits"):
            bound[history] = family.bind(tokenizer, history=history, **given)
    if len(bound) == 2:
        _refusals(report, family, tokenizer, given)
        _Check(report, bound["append"], bound["template"], tokenizer).all(random.Random(seed), examples)
        if reference is not None:
            from agentfly_core.templates.check import check_template as compare

            with report.guard("comparison with the model's own template", "render what the model's own template does"):
                for step in compare(family, tokenizer, reference, **given):
                    where = f"conversation {step.probe!r}, turn {step.turn}"
                    fix = "render what the model's own template does"
                    report.expect(not step.misfit, step.misfit, where=where, fix=fix)
    report.finish()


def _refusals(report: Report, family: TemplateFamily, tokenizer: tokenizers.Tokenizer, options: dict[str, Any]) -> None:
    import tokenizers as library

    empty = library.Tokenizer(library.models.BPE())
    cases: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("a tokenizer without control tokens", empty, {}),
        ("an unknown history", tokenizer, {"history": "sideways"}),
        ("an unknown option", tokenizer, {"no_such_option": 1}),
    )
    for what, given, more in cases:
        fix = "raise UsageError: this is the user's to mend, and must not surface during a run"
        try:
            family.bind(given, **{**options, **more})
            report.add(f"it accepts {what}", where="bind", fix=fix)
        except UsageError:
            continue
        except Exception as error:
            report.add(f"{what} raised {show_error(error)}", where="bind", fix=fix)


class _Check:
    def __init__(
        self, report: Report, append: ChatTemplate, template: ChatTemplate, tokenizer: tokenizers.Tokenizer
    ) -> None:
        self.report, self.append, self.template, self.tokenizer = report, append, template, tokenizer
        self.controls = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)

    def all(self, rng: random.Random, examples: int) -> None:
        if not self._stops():
            return
        fix = "accept ordinary messages; only what the format cannot carry is a UsageError"
        parts = (self._observations, self._continuations, self._probes, self._replies)
        for check in (self._prompts, self._bad_messages, *parts):
            with self.report.guard(check.__name__.strip("_").replace("_", " "), fix):
                check()
        for generation in hostile_turns(self.tokenizer, self.append.stop_token_ids[0], rng, examples):
            self._parse(generation)

    def _stops(self) -> bool:
        stops = self.append.stop_token_ids
        good = isinstance(stops, tuple) and bool(stops) and all(type(i) is int and 0 <= i < self.size for i in stops)
        fix = "look the end tokens up in the tokenizer by their text"
        return self.report.expect(good, f"they are {show(stops)}", where="stop_token_ids", fix=fix)

    def _ids(self, ids: Any, where: str) -> list[int]:
        good = isinstance(ids, list) and all(type(i) is int and 0 <= i < self.size for i in ids)
        fix = "return a list of plain ints of the tokenizer's vocabulary"
        self.report.expect(good, f"it gave {show(ids)}", where=where, fix=fix)
        return list(ids)

    def _one_call(self, ids: Sequence[int], where: str) -> None:
        """Ids encoded in one call are the ids of their own text."""
        text = self.append.decode(ids)
        again = self.tokenizer.encode(text, add_special_tokens=False).ids
        lossless = self.tokenizer.decode(again, skip_special_tokens=False) == text
        good = not lossless or again == list(ids)
        self.report.expect(good, f"the ids of {show(text)} are not those of the whole text", where=where, fix=ONE_CALL)

    def _prompts(self) -> None:
        for probe in PROBES:
            ids = self._ids(self.append.encode_prompt(probe.messages, probe.tools), f"encode_prompt, {probe.name!r}")
            where = f"encode_prompt, {probe.name!r}"
            self._one_call(ids, where)
            same = ids == self.append.encode_prompt(probe.messages, probe.tools)
            same = same and ids == self.template.encode_prompt(probe.messages, probe.tools)
            what = "a second call, or the other history, gives other ids"
            self.report.expect(same, what, where=where, fix="let a prompt depend on messages and tools alone")
        for edge in EDGES:
            self._one_call(self.append.encode_prompt([{"role": "user", "content": edge}]), "encode_prompt")
        self._carries("zebra")
        for control in self.controls:
            self._injection(control)

    def _carries(self, word: str) -> None:
        for role, messages, tools in with_content(word):
            good = word in self.append.decode(self.append.encode_prompt(messages, tools))
            what = f"the {role} content is not in the prompt"
            self.report.expect(good, what, where="encode_prompt", fix="render every content, or raise UsageError")

    def _injection(self, control: str) -> None:
        harmless = [self._control_ids(self.append.encode_prompt(m, t)) for _, m, t in with_content("x")]
        for (role, messages, tools), expected in zip(with_content(f"x{control}x"), harmless, strict=True):
            found = self._control_ids(self.append.encode_prompt(messages, tools))
            what = f"the text of a control token becomes one in {role} content"
            where = f"encode_prompt, content {show(control)}"
            self.report.expect(found == expected, what, where=where, fix=INJECTION)
        after = self._turn("2")
        for role in ("tool", "user"):
            plain: list[Message] = [{"role": role, "content": "x"}]  # type: ignore[typeddict-item]
            hostile: list[Message] = [{"role": role, "content": f"x{control}x"}]  # type: ignore[typeddict-item]
            expected = self._control_ids(self.append.encode_observation(plain, after=after))
            found = self._control_ids(self.append.encode_observation(hostile, after=after))
            what = f"the text of a control token becomes one in {role} content"
            where = f"encode_observation, content {show(control)}"
            self.report.expect(found == expected, what, where=where, fix=INJECTION)

    def _control_ids(self, ids: Sequence[int]) -> list[int]:
        known = set(self.controls.values())
        return [i for i in ids if i in known]

    def _bad_messages(self) -> None:
        bad: tuple[Any, ...] = ({"role": "nobody", "content": "x"}, {"role": "user", "content": 3}, {"role": "user"})
        for message in bad:
            try:
                self.append.encode_prompt([message])
            except UsageError:
                continue
            except Exception as error:
                what = f"a message that is none raised {type(error).__name__}: {show_error(error)}"
                fix = "raise UsageError, naming the message and what is wrong with it"
                self.report.add(what, where=f"encode_prompt, {show(message)}", fix=fix)

    def _observations(self) -> None:
        end = self.append.stop_token_ids[0]
        for content in EDGES:
            for message in ({**RESULT, "content": content}, {**USER, "content": content}):
                where = f"encode_observation, {message['role']} content {show(content)}"
                after = self._turn("2")
                closed = self._ids(self.append.encode_observation([message], after=after), where)  # type: ignore[list-item]
                cut_turn = replace(after, token_ids=after.token_ids[:-1], logprobs=after.logprobs[:-1])
                cut = self._ids(self.append.encode_observation([message], after=cut_turn), where)  # type: ignore[list-item]
                self._one_call(closed, where)
                self._one_call(cut, where)
                good = cut[:1] == [end] and closed[:1] != [end]
                fix = "begin with the end token exactly if the turn's last id is no stop token"
                self.report.expect(good, "a cut turn is not closed, or a closed one twice", where=where, fix=fix)
                good = self.append.decode(cut) == self.append.decode([end]) + self.append.decode(closed)
                what = "after a cut turn it differs by more than the end token"
                self.report.expect(good, what, where=where, fix=fix)
                for other, expected in ((cut_turn, cut), (after, closed)):
                    turned = replace(other, finish_reason="stop" if other is cut_turn else "length")
                    good = self.append.encode_observation([message], after=turned) == expected  # type: ignore[list-item]
                    what = "the finish reason decides where the ids should"
                    self.report.expect(good, what, where=where, fix="look at the turn's last id alone")

    def _continuations(self) -> None:
        plain = self.append.decode(self.append.encode_continuation("zebra"))
        fix = "encode the text and nothing else: it goes on within the assistant message"
        self.report.expect(plain == "zebra", f"'zebra' became {show(plain)}", where="encode_continuation", fix=fix)
        for content in EDGES:
            where = f"encode_continuation of {show(content)}"
            self._one_call(self._ids(self.append.encode_continuation(content), where), where)
        for control in self.controls:
            found = self._control_ids(self.append.encode_continuation(f"x{control}x"))
            what = "the text of a control token becomes one in a continuation"
            where = f"encode_continuation of {show(control)}"
            self.report.expect(not found, what, where=where, fix=INJECTION)

    def _probes(self) -> None:
        for probe in PROBES:
            history = History(list(probe.messages), self.append.encode_prompt(probe.messages, probe.tools))
            for turn in probe.turns:
                sampled = self._turn(turn.raw, cut=turn.end == "cut")
                history.segment_ids = [*history.segment_ids, *sampled.token_ids]
                history.messages.append({"role": "assistant", "content": turn.raw})
                history.last, history.last_raw = sampled, turn.raw
                self._extend(history, turn.observation, probe.tools, f"extend, {probe.name!r}")

    def _extend(
        self, history: History, observation: Sequence[Message], tools: Sequence[ToolSchema], where: str
    ) -> None:
        """Both histories; then the history goes on as append history has it."""
        assert history.last is not None
        expected = self.append.encode_observation(observation, after=history.last)
        before = list(history.messages)
        step = self.append.extend(history, observation, tools)
        fix = "in append history return Appended(encode_observation(observation, after=history.last)), always"
        good = isinstance(step, Appended) and step.ids == expected
        self.report.expect(good, f"append history gave {show(step)}", where=where, fix=fix)
        step = self.template.extend(history, observation, tools)
        good = history.messages == before
        self.report.expect(good, "it changed the history", where=where, fix="leave the history to the engine")
        whole = self.template.encode_prompt([*history.messages, *observation], tools)
        if isinstance(step, NewSegment):
            good = list(step.prompt_ids) == whole
            what = "the new segment does not open with the prompt of the whole conversation"
            fix = "return NewSegment(encode_prompt(messages and observation))"
        else:
            before_turn = self.template.encode_prompt(history.messages[:-1], tools)
            kept = self.template.decode([*before_turn, *history.last.token_ids, *step.ids])
            good = list(step.ids) == expected and kept == self.template.decode(whole)
            what = "template history appends where the format renders the conversation otherwise"
            fix = "return NewSegment where the longer conversation does not extend the prompt and the turn"
        self.report.expect(good, what, where=where, fix=fix)
        history.messages += observation
        history.segment_ids = [*history.segment_ids, *expected]

    def _replies(self) -> None:
        arguments = {"expression": 'a "quoted" \n text, \u00fc', "n": [1, {"x": None}]}
        call = {"type": "function", "function": {"name": "calculator", "arguments": arguments}}
        messages: tuple[Message, ...] = (
            {"role": "assistant", "content": "It is 2."},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [call, call]},
        )
        for message in messages:
            where = f"encode_reply with {len(message.get('tool_calls', ()))} calls"
            try:
                ids = self._ids(self.append.encode_reply(message), where)
            except UsageError:
                continue  # the format carries no calls
            good = bool(ids) and ids[-1] in self.append.stop_token_ids
            self.report.expect(good, "it does not end a turn", where=where, fix="end with the end token")
            turn = self.append.parse(Generation(tuple(ids), (0.0,) * len(ids), "stop"))
            calls = [(c.name, dict(c.arguments)) if isinstance(c, ToolCall) else c for c in turn.calls]
            good = turn.content.strip() == message["content"]
            good = good and calls == [("calculator", arguments)] * len(message.get("tool_calls", ()))
            what = f"parse reads {show(turn)} from it"
            self.report.expect(good, what, where=where, fix="write what parse reads back, content and calls alike")

    def _turn(self, text: str, *, cut: bool = False) -> Generation:
        return sampled(self.tokenizer, text, None if cut else self.append.stop_token_ids[0])

    def _parse(self, generation: Generation) -> None:
        where = f"parse, turn {show(self.tokenizer.decode(list(generation.token_ids), skip_special_tokens=False))}"
        with self.report.guard(where, "never raise on model output: make it a CallError"):
            turn = self.append.parse(generation)
            good = isinstance(turn, AssistantTurn) and isinstance(turn.content, str)
            good = good and all(isinstance(call, ToolCall | CallError) for call in turn.calls)
            fix = "return an AssistantTurn whose calls are ToolCall and CallError objects"
            if not self.report.expect(good, f"it gave {show(turn)}", where=where, fix=fix):
                return
            for call in turn.calls:
                if isinstance(call, ToolCall):
                    fix = "turn calls without a name, with surrogates or with numbers that JSON lacks into CallErrors"
                    good = isinstance(call.name, str) and bool(call.name) and is_json(call.arguments)
                    self.report.expect(good, f"a call is not fit to be run: {show(call)}", where=where, fix=fix)
