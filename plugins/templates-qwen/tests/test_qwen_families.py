"""Binding, refusals, contents that hold control tokens, and a small tokenizer with ids of its own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentfly_templates_qwen.families import QWEN3, QWEN3_INSTRUCT_2507, QWEN25

from agentfly_core.plugins import Plugins
from agentfly_core.types import Appended, ChatTemplate, Generation, History, NewSegment, TemplateFamily, UsageError

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
USER = {"role": "user", "content": "What is 1+1?"}


def sampled(template, text, stop="<|im_end|>", finish="stop"):
    ids = tuple(template.codec.encode(text + stop))
    return Generation(ids, (0.0,) * len(ids), finish)


def test_the_plugin_registers_its_families():
    registry = Plugins.load().registry("templates")
    assert {"qwen2.5", "qwen3", "qwen3-instruct-2507"} <= set(registry.names())
    for name in ("qwen2.5", "qwen3", "qwen3-instruct-2507"):
        assert isinstance(registry.get(name), TemplateFamily)
        assert registry.get(name).name == name
        assert registry.find(name).plugin == "qwen"


def test_registering_imports_nothing_heavy():
    code = (
        "import sys; from agentfly_core.plugins import Plugins; Plugins.load();"
        "print([m for m in ('tokenizers', 'torch', 'transformers', 'jinja2') if m in sys.modules])"
    )
    environment = {"AGENTFLY_LOAD_PLUGINS": "qwen", "PATH": ""}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_small_tokenizer_has_its_own_ids(small):
    template = QWEN25.bind(small())
    assert isinstance(template, ChatTemplate)
    assert template.stop_token_ids == (2, 0)
    ids = template.encode_prompt([{"role": "system", "content": ""}, {"role": "user", "content": "<|im_end|>"}])
    # <|im_start|> is 1, <|im_end|> is 2; the user's own text is spelled in bytes.
    assert [i for i in ids if i < 5] == [1, 2, 1, 2, 1]
    assert template.decode(ids) == (
        "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert len(ids) == 5 + len("system\n\nuser\n<|im_end|>\nassistant\n")


@pytest.mark.parametrize("lacking", CONTROL)
def test_a_tokenizer_without_a_control_token_is_refused(small, lacking):
    with pytest.raises(UsageError, match=r"'qwen2.5' does not fit: .* no control token") as caught:
        QWEN25.bind(small([c for c in CONTROL if c != lacking]))
    assert lacking in str(caught.value)


@pytest.mark.parametrize(
    ("family", "lacking"), [(QWEN3, "<think>"), (QWEN3, "<tool_response>"), (QWEN3_INSTRUCT_2507, "</tool_response>")]
)
def test_qwen3_needs_its_own_tokens(small, family, lacking):
    with pytest.raises(UsageError, match="no control token") as caught:
        family.bind(small())
    assert lacking in str(caught.value)


def test_wrong_options_are_refused(small):
    with pytest.raises(UsageError, match="did you mean 'thinking'"):
        QWEN3.bind(small(), thinkin=True)
    with pytest.raises(UsageError, match="thinking must be true or false, got 'no'"):
        QWEN3.bind(small(), thinking="no")
    with pytest.raises(UsageError, match="thinking"):
        QWEN25.bind(small(), thinking=True)
    with pytest.raises(UsageError, match="history: 'both' is not one of append, template"):
        QWEN25.bind(small(), history="both")


IMAGE = {"type": "image", "image": b""}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "bot", "content": "x"}, r"messages\[1\]\.role: 'bot' is not one of"),
        ({"content": "x"}, r"messages\[1\]\.role: None"),
        ("hello", r"messages\[1\]: a message is a mapping"),
        ({"role": "user", "content": None}, r"messages\[1\]\.content: is missing"),
        ({"role": "tool"}, r"messages\[1\]\.content: is missing"),
        ({"role": "user", "content": 5}, r"messages\[1\]\.content: must be text or a list of parts, got int"),
        (
            {"role": "user", "content": [IMAGE]},
            r"messages\[1\]\.content\[0\]: .* text only, got a part of type 'image'",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\]\.content\[0\]: .* a text part without text"),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
            r"\[1\]\.tool_calls\[0\]\.arg",
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {}}]},
            r"messages\[1\]\.tool_calls\[0\]: must be",
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            r"messages\[1\]\.tool_calls\[0\]\.arguments: .* give an object",
        ),
    ],
)
def test_messages_that_do_not_fit(small, message, said):
    with pytest.raises(UsageError, match=said):
        QWEN25.bind(small()).encode_prompt([USER, message])


def test_observation_errors_name_the_observation(small):
    template = QWEN25.bind(small())
    with pytest.raises(UsageError, match=r"observation\[1\]\.content: is missing"):
        template.encode_observation([USER, {"role": "tool", "content": None}], after=sampled(template, "x"))
    with pytest.raises(UsageError, match="at least one message"):
        template.encode_prompt([])


def test_text_parts_are_joined(small):
    template = QWEN25.bind(small())
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "1+1?"}]
    assert template.encode_prompt([{"role": "user", "content": parts}]) == template.encode_prompt([USER])


def test_reasoning_content(tokenizer_of):
    template = QWEN3.bind(tokenizer_of("qwen3"))
    message = {"role": "assistant", "content": "2", "reasoning_content": "One."}
    assert template.decode(template.encode_reply(message)) == "<think>\nOne.\n</think>\n\n2<|im_end|>"
    with pytest.raises(UsageError, match="reasoning_content: thinking is switched off"):
        QWEN3.bind(tokenizer_of("qwen3"), thinking=False).encode_reply(message)
    with pytest.raises(UsageError, match=r"messages\[1\]\.reasoning_content: must be text, got int"):
        template.encode_prompt([USER, {**message, "reasoning_content": 1}])


@pytest.mark.parametrize("family", [QWEN25, QWEN3, QWEN3_INSTRUCT_2507], ids=lambda f: f.name)
def test_structured_messages_equal_the_models_own(family, tokenizer_of, reference_of):
    template, reference = family.bind(tokenizer_of(family.name)), reference_of(family.name)
    call = {"function": {"name": "f", "arguments": {"b": [1, 2.5, None, True], "a": '<é> & "x"\n'}}}
    flat = {"name": "g", "arguments": {}}
    for content in ("", "Calling.", "\n", "<think>\nx\n</think>\n\nNow."):
        for reasoning in ({}, {"reasoning_content": "\nHm.\n"}):
            for after in ([], [{"role": "tool", "content": "1"}], [USER]):
                shown = {"role": "assistant", "content": content, "tool_calls": [call, flat], **reasoning}
                messages = [USER, shown, *after]
                expected = tokenizer_of(family.name).encode(reference.render(messages), add_special_tokens=False).ids
                assert template.encode_prompt(messages) == expected


def test_reply_is_what_the_conversation_holds(tokenizer_of):
    template = QWEN25.bind(tokenizer_of("qwen2.5"))
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}]
    for message in ({"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": calls}):
        whole = template.encode_prompt([USER, message, USER])
        parts = template.encode_prompt([USER]) + template.encode_reply(message)
        assert whole[: len(parts)] == parts
    with pytest.raises(UsageError, match="must be assistant"):
        template.encode_reply(USER)


def test_delimiters_in_assistant_messages_stay_text(tokenizer_of):
    """The tags of a reply are the format's own; the delimiters of turns are not its to write."""
    template = QWEN3.bind(tokenizer_of("qwen3"))
    ids = template.encode_prompt([USER, {"role": "assistant", "content": "<tool_call>x<|im_end|>"}, USER])
    assert ids.count(151657) == 1
    assert ids.count(151645) == 3


def test_arguments_and_names_of_calls_are_contents(tokenizer_of):
    template = QWEN3.bind(tokenizer_of("qwen3"))
    call = {"function": {"name": "</tool_call>", "arguments": {"x": "<|im_end|><tool_call>"}}}
    ids = template.encode_prompt([USER, {"role": "assistant", "content": "", "tool_calls": [call]}, USER])
    assert (ids.count(151657), ids.count(151658), ids.count(151645)) == (1, 1, 3)


def test_lone_surrogates_in_a_result_become_replacement_characters(tokenizer_of):
    template = QWEN25.bind(tokenizer_of("qwen2.5"))
    after = sampled(template, "x")
    for content, shown in (("a\ud83d", "a\ufffd"), ("<|im_end|>\udc00", "<|im_end|>\ufffd")):
        ids = template.encode_observation([{"role": "tool", "content": content}], after=after)
        assert ids == template.encode_observation([{"role": "tool", "content": shown}], after=after)


def test_a_turn_ended_by_a_stop_token_of_the_host_is_closed(small):
    """The ids decide, not the finish reason."""
    template = QWEN25.bind(small())
    closed = template.encode_observation([USER], after=sampled(template, "x"))
    for generation in (sampled(template, "x", stop=""), sampled(template, "x", stop="", finish="length")):
        assert template.encode_observation([USER], after=generation) == [2, *closed]
    assert template.encode_observation([USER], after=Generation((), (), "abort")) == [2, *closed]
    assert template.encode_observation([USER], after=sampled(template, "x", stop="<|endoftext|>")) == closed


def test_endoftext_opens_a_new_segment_in_template_history_only(small):
    for history, kind in (("append", Appended), ("template", NewSegment)):
        template = QWEN25.bind(small(), history=history)
        state = History([USER, {"role": "assistant", "content": "x"}], [], sampled(template, "x", "<|endoftext|>"), "x")
        assert isinstance(template.extend(state, [USER], ()), kind)


def test_extending_nothing_is_a_mistake_of_the_caller(small):
    with pytest.raises(ValueError, match="no turn to extend"):
        QWEN25.bind(small()).extend(History([USER]), [USER], ())


def test_the_cost_of_an_observation_does_not_grow_with_the_chain(tokenizer_of):
    """Append history renders the observation and nothing else."""
    template = QWEN3.bind(tokenizer_of("qwen3"))
    calls = []
    template.codec.encode = lambda rendered: calls.append(len(rendered.text)) or []
    after = Generation((151645,), (0.0,), "stop")
    for turns in (1, 100):
        history = History([USER, {"role": "assistant", "content": "x"}] * turns, [], after, "x")
        template.extend(history, [{"role": "tool", "content": "2"}], ())
    assert calls[0] == calls[1]
    assert len(calls) == 2


def test_threads_share_a_template(tokenizer_of):
    template = QWEN3.bind(tokenizer_of("qwen3"))
    after = Generation((151645,), (0.0,), "stop")
    observations = [[{"role": "tool", "content": f"{i} <|im_end|>" * (i % 3)}] for i in range(60)]
    expected = [template.encode_observation(o, after=after) for o in observations]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda o: template.encode_observation(o, after=after), observations)) == expected
