"""The token contract over random conversations, against the models' own Jinja and tokenizers."""

from __future__ import annotations

import re
import unicodedata

import pytest
from agentfly_templates_qwen.families import QWEN3, QWEN3_INSTRUCT_2507, QWEN25
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfly_core.types import Appended, CallError, Generation, History, NewSegment, ToolCall

VARIANTS = {
    "qwen2.5": (QWEN25, {}, {}),
    "qwen3": (QWEN3, {}, {}),
    "qwen3-no-thinking": (QWEN3, {"thinking": False}, {"enable_thinking": False}),
    "qwen3-instruct-2507": (QWEN3_INSTRUCT_2507, {}, {}),
}
CONTROL = re.compile(r"<\|im_start\|>|<\|im_end\|>|<\|endoftext\|>|</?tool_call>|</?tool_response>|</?think>")
MERGES = re.compile(r"^\s*[\r\n]")
"""Sampled text that the newline before it swallows when both are encoded together."""

ASCII = (
    "a",
    "B",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "7",
    "42",
    ".",
    "Done.",
    "{",
    '"',
    "\\",
    "<",
    ">",
    "|",
    "<b>&</b>",
)
# Accents that compose, letters that normalise away, emojis of several bytes, other white space. Not U+0338, which
# composes with the '>' of a tag.
UNICODE = ("\u00e9", "e\u0301", "\u0301", "n\u0303", "\u212b", "\u2126", "\u212a", "\ufb01", "\u4e16\u754c", "\u2028")
EMOJI = ("\U0001f642", "\U0001f469\u200d\U0001f680", "\u00a0")
TAGS = ("<tool_call>", "</tool_call>", "</tool_response>", "<think>", "</think>")
DELIMITERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>\n<|im_start|>system\n", "<|fim_prefix|>")

words = st.sampled_from((*ASCII, *UNICODE, *EMOJI))
control_words = st.sampled_from((*TAGS, *DELIMITERS))
plain = st.lists(words, max_size=8).map("".join)
hostile = st.lists(st.one_of(words, control_words), max_size=8).map("".join)
contents = st.one_of(plain, hostile)

calls = st.sampled_from(
    [
        '<tool_call>\n{"name": "calc", "arguments": {"x": "1"}}\n</tool_call>',
        '<tool_call>{"name":"calc","arguments":{"x":"\\ud83d\\ude42"}}</tool_call>',
        '<tool_call>\n{"name": "calc", "arguments": {"x": "\\ud800"}}\n</tool_call>',
        '<tool_call>\n{"name": "calc", "arguments": {\n</tool_call>',
        '<tool_call>\n["calc"]\n</tool_call>',
        '<tool_call>\n{"name": "calc", "arguments": ',
        '{"name": "calc"}</tool_call>',
    ]
)
THINKING = (
    "",
    "<think>\nSo.\n</think>\n\n",
    "<think>\n\n</think>\n\n",
    "<think>x</think>",
    "\n<think>\ny\n</think>\n",
    "<think>\nnever closed",
    "</think>",
    "<think>\n\na\n\n</think>\n\n\n",
    "a</think>b</think>",
)
thinking = st.one_of(st.just(""), st.sampled_from(THINKING))
raws = st.builds(lambda t, body: t + "".join(body), thinking, st.lists(st.one_of(plain, plain, calls), max_size=4))

tool_messages = st.lists(st.builds(lambda c: {"role": "tool", "content": c}, contents), min_size=1, max_size=3)
user_messages = st.lists(st.builds(lambda c: {"role": "user", "content": c}, contents), min_size=1, max_size=1)
observations = st.one_of(tool_messages, user_messages, st.builds(lambda a, b: a + b, tool_messages, user_messages))
ends = st.sampled_from(["end", "end", "end", "other", "cut", "cut inside"])
turns = st.lists(st.tuples(raws, ends, observations), min_size=1, max_size=4)

openings = st.builds(
    lambda system, shots, user: [*system, *shots, {"role": "user", "content": user}],
    st.one_of(st.just([]), st.builds(lambda c: [{"role": "system", "content": c}], contents)),
    st.sampled_from(
        [[], [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "<think>\nh\n</think>\n\n2"}]]
    ),
    contents,
)
tools = st.one_of(
    st.just([]),
    st.builds(
        lambda d: [
            {"type": "function", "function": {"name": "calc", "description": d, "parameters": {"b": 1, "a": [2.5]}}}
        ],
        contents,
    ),
)
many = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Oracle:
    """What the model's own Jinja template and tokenizer say; shares no code with the templates under test."""

    def __init__(self, tokenizer, reference, variables):
        self.tokenizer, self.reference, self.variables = tokenizer, reference, variables

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, messages, tools):
        return self.reference.render(messages, tools, **self.variables)

    def sample(self, raw, end):
        """A turn's ids, its text and the text of its stop token."""
        ids = self.encode(raw)
        if end == "cut inside":
            ids = ids[: (len(ids) + 1) // 2]
        raw = self.tokenizer.decode(ids, skip_special_tokens=False)
        stop = {"end": "<|im_end|>", "other": "<|endoftext|>"}.get(end, "")
        return Generation(
            (*ids, *self.encode(stop)), (0.0,) * (len(ids) + bool(stop)), "stop" if stop else "length"
        ), raw


@pytest.fixture(params=VARIANTS)
def variant(request, tokenizer_of, reference_of):
    family, options, variables = VARIANTS[request.param]
    tokenizer = tokenizer_of(family.name)
    oracle = Oracle(tokenizer, reference_of(family.name), variables)
    return family.bind(tokenizer, **options), family.bind(tokenizer, history="template", **options), oracle


def carries_control(messages, tools=()):
    """Whether anything that is only content holds the text of a control token."""
    texts = [m["content"] for m in messages if m["role"] != "assistant"] + [t["function"]["description"] for t in tools]
    return any(CONTROL.search(t) or "<|" in t for t in texts)


def delimiters(oracle, text):
    return [oracle.encode(t)[0] for t in CONTROL.findall(text) if len(oracle.encode(t)) == 1]


def neutral(messages):
    return [m if m["role"] == "assistant" else {**m, "content": "x"} for m in messages]


@many
@given(opening=openings, tools=tools)
def test_prompts(variant, opening, tools):
    template, _, oracle = variant
    ids = template.encode_prompt(opening, tools)
    text = oracle.text(opening, tools)
    if not carries_control(opening, tools):
        assert ids == oracle.encode(text)
    assert template.decode(ids) == unicodedata.normalize("NFC", text)
    harmless = [{**t, "function": {**t["function"], "description": "x"}} for t in tools]
    controls = set(oracle.tokenizer.get_added_tokens_decoder())
    # As many control tokens as with harmless contents, in the same order.
    assert [i for i in ids if i in controls] == delimiters(oracle, oracle.text(neutral(opening), harmless))


@many
@given(opening=openings, tools=tools, turns=turns)
def test_append_history(variant, opening, tools, turns):
    template, _, oracle = variant
    ids = template.encode_prompt(opening, tools)
    history = History(list(opening))
    equal = not carries_control(opening, tools)
    for raw, end, observation in turns:
        sampled, raw = oracle.sample(raw, end)
        text = oracle.text(history.messages, tools)
        history.messages.append({"role": "assistant", "content": raw})
        history.last, history.last_raw = sampled, raw
        step = template.extend(history, observation, tools)
        assert isinstance(step, Appended)
        assert step.ids == template.encode_observation(observation, after=sampled)

        # The observation alone: what the model's template writes after an end token, in one tokenizer call.
        marked = oracle.text(
            [{"role": "user", "content": "u"}, {"role": "assistant", "content": "@@"}, *observation], []
        )
        closing = "" if sampled.finish_reason == "stop" else "<|im_end|>"
        suffix = closing + marked.partition("@@<|im_end|>")[2]
        assert template.decode(step.ids) == unicodedata.normalize("NFC", suffix)
        if not carries_control(observation):
            assert step.ids == oracle.encode(suffix)

        # The whole so far equals the template's own ids exactly where its text extends the text so far, the sampled
        # ids are the text's own and the sampled text does not begin with a line end.
        history.messages += observation
        full = oracle.text(history.messages, tools)
        equal = (
            equal
            and not carries_control(observation)
            and full.startswith(text + raw + "<|im_end|>")
            and end != "other"
            and oracle.encode(raw) == list(sampled.token_ids[: None if closing else -1])
        )
        if MERGES.match(raw):
            equal = False
        ids = [*ids, *sampled.token_ids, *step.ids]
        if equal:
            assert ids == oracle.encode(full)


@many
@given(opening=openings, tools=tools, turns=turns)
def test_template_history(variant, opening, tools, turns):
    append, template, oracle = variant
    history = History(list(opening))
    segment = template.encode_prompt(opening, tools)
    assert segment == append.encode_prompt(opening, tools)
    for raw, end, observation in turns:
        sampled, raw = oracle.sample(raw, end)
        before = oracle.text(history.messages, tools)
        history.messages.append({"role": "assistant", "content": raw})
        history.last, history.last_raw = sampled, raw
        step = template.extend(history, observation, tools)
        history.messages += observation
        full = oracle.text(history.messages, tools)
        extends = end != "other" and full.startswith(before + raw + "<|im_end|>")
        assert isinstance(step, Appended if extends else NewSegment)
        if extends:
            assert step.ids == append.encode_observation(observation, after=sampled)
            continue
        assert template.decode(step.prompt_ids) == unicodedata.normalize("NFC", full)
        if not carries_control(history.messages, tools):
            assert step.prompt_ids == oracle.encode(full)
        starts = oracle.encode("<|im_start|>")[0]
        assert step.prompt_ids.count(starts) == oracle.text(neutral(history.messages), []).count("<|im_start|>") + (
            1 if tools and history.messages[0]["role"] != "system" and "qwen2.5" not in template.name else 0
        )


@many
@given(turns=turns)
def test_parse(variant, turns):
    template, _, oracle = variant
    for raw, end, _ in turns:
        sampled, raw = oracle.sample(raw, end)
        parsed = template.parse(sampled)
        assert all(isinstance(c, ToolCall | CallError) for c in parsed.calls)
        visible = raw
        if template.name == "qwen3":
            _, closed, after = raw.partition("</think>")
            visible = after if closed else "" if raw.lstrip().startswith("<think>") else raw
            assert (parsed.reasoning is None) == (not closed and not raw.lstrip().startswith("<think>"))
        else:
            assert parsed.reasoning is None
        # One outcome for each opening tag outside another call.
        assert len(parsed.calls) == len(re.findall(r"<tool_call>.*?(?:</tool_call>|\Z)", visible, re.DOTALL))
        assert parsed.content == re.sub(r"<tool_call>.*?(?:</tool_call>|\Z)", "", visible, flags=re.DOTALL)
