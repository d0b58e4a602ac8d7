"""Hermes tool calls: the good run, the bad are typed, nothing raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.templates import parse_hermes
from agentfly_core.templates.hermes import MAX_DEPTH, read_call
from agentfly_core.types import CallError, ToolCall


def kinds(text, **options):
    return [c.kind.value if isinstance(c, CallError) else "call" for c in parse_hermes(text, **options).calls]


def call(name="f", arguments="{}"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def nested(depth):
    """An object of ``depth`` levels of arrays."""
    return f'{{"a": {"[" * depth}{"]" * depth}}}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", "invalid_json"),
        ("{'name': 'f', 'arguments': {}}", "invalid_json"),
        ('{"name": "f", "arguments": {"x": None}}', "invalid_json"),
        ('{"name": "f", "arguments": {}} {}', "invalid_json"),
        ('{"name": "f", "arguments": {"x": NaN}}', "invalid_json"),
        ('{"name": "f", "arguments": {"x": -Infinity}}', "invalid_json"),
        ('{"name": "f", "arguments": {"x": 1e999}}', "invalid_json"),
        ('{"name": "f", "arguments": {"x": "a\nb"}}', "invalid_json"),
        ("[" * 3000 + "]" * 3000, "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}", "invalid_json"),
        ("[]", "not_an_object"),
        ('"f"', "not_an_object"),
        ("null", "not_an_object"),
        ('{"arguments": {}}', "missing_name"),
        ('{"name": "", "arguments": {}}', "missing_name"),
        ('{"name": 5, "arguments": {}}', "missing_name"),
        ('{"name": "f"}', "missing_arguments"),
        ('{"name": "f", "arguments": "{}"}', "arguments_not_an_object"),
        ('{"name": "f", "arguments": null}', "arguments_not_an_object"),
        ('{"name": "f", "arguments": {"x": "\\ud83d"}}', "lone_surrogate"),
        ('{"name": "f", "arguments": {"\\udc00": 1}}', "lone_surrogate"),
        ('{"name": "\\ud800", "arguments": {}}', "lone_surrogate"),
        ('{"name": "f", "arguments": {"x": [{"y": "\\udfff"}]}}', "lone_surrogate"),
    ],
)
def test_bad_calls_have_a_kind(body, kind):
    error = read_call(body)
    assert isinstance(error, CallError)
    assert error.kind.value == kind
    assert len(error.message) < 500
    json.dumps(error.message).encode()
    (error.message + (error.name or "")).encode("utf-8")


def test_a_good_call_keeps_its_arguments():
    text = (
        '<tool_call>{"name": "f", "arguments": {"b": [1, 2.5, 1e3, null, true], "a": "\\ud83d\\ude42 é"}}</tool_call>'
    )
    (good,) = parse_hermes(text).calls
    assert good == ToolCall("f", {"b": [1, 2.5, 1000.0, None, True], "a": "\U0001f642 é"})
    assert list(good.arguments) == ["b", "a"]


def test_errors_name_the_tool_where_they_can():
    assert read_call('{"name": "f"}').name == "f"
    assert read_call('{"name": "f", "arguments": {"x": "\\ud83d"}}').name == "f"
    assert read_call('{"name": "\\ud83d", "arguments": {}}').name is None
    assert "Expecting ',' delimiter" in read_call('{"name": "f" "arguments"}').message


@pytest.mark.parametrize(
    ("depth", "kind"), [(MAX_DEPTH - 3, "call"), (MAX_DEPTH + 2, "invalid_json"), (900, "invalid_json")]
)
def test_nesting_is_bounded_before_anything_recurses_over_it(depth, kind):
    assert kinds(call(arguments=nested(depth))) == [kind]


def test_each_call_stands_alone():
    text = f"Let me. {call()}\n<tool_call>nonsense</tool_call>{call('g')} done<tool_call>\n{{"
    turn = parse_hermes(text)
    assert kinds(text) == ["call", "invalid_json", "call", "unterminated"]
    assert [c.name for c in turn.calls] == ["f", None, "g", None]
    assert turn.content == "Let me. \n done"
    assert turn.reasoning is None


def test_a_call_inside_a_call_spoils_only_itself():
    assert kinds(f"<tool_call>\n{call()}{call('g')}") == ["invalid_json", "call"]


def test_text_without_calls_is_content():
    assert parse_hermes("Just </tool_call> text").content == "Just </tool_call> text"


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "found"),
    [
        ("2", None, "2", []),
        ("<think>\na\n</think>\n\n2", "\na\n", "\n\n2", []),
        ("\n <think>a</think>2", "a", "2", []),
        ("a</think>2", "a", "2", []),
        ("a<think>b</think>2", "a<think>b", "2", []),
        (f"<think>{call()}</think>{call('g')}", call(), "", ["call"]),
        (f"<think>never {call()}", f"never {call()}", "", []),
        (f"no think {call()}", None, "no think ", ["call"]),
        ("<think>a</think>b</think>c", "a", "b</think>c", []),
    ],
)
def test_reasoning(text, reasoning, content, found):
    turn = parse_hermes(text, reasoning=True)
    assert (turn.reasoning, turn.content) == (reasoning, content)
    assert kinds(text, reasoning=True) == found


def test_thinking_tags_are_text_where_the_format_has_none():
    assert parse_hermes("<think>a</think>2").content == "<think>a</think>2"


TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
TEXTS = ('{"name": "f", "arguments": {}}', "{", "}", "[", '"', "\\ud800", "\n", "1e400", "NaN", "x", "\ud800", "🙂")
pieces = st.sampled_from((*TAGS, *TEXTS))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(text=st.lists(pieces, max_size=20).map("".join), reasoning=st.booleans())
def test_nothing_raises(text, reasoning):
    for found in parse_hermes(text, reasoning=reasoning).calls:
        assert isinstance(found, ToolCall | CallError)


@given(name=st.text(min_size=1), arguments=st.dictionaries(st.text(), values, max_size=4))
def test_what_json_writes_is_read_back(name, arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    assert read_call(body) == ToolCall(name, arguments)
