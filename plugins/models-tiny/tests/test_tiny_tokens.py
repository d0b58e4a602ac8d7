"""The tokenizer and the chat template of the packaged model."""

from __future__ import annotations

import json
from itertools import islice

import pytest

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from agentfly_models_tiny import model_folder  # noqa: E402
from agentfly_models_tiny.demonstrations import demonstrations  # noqa: E402
from agentfly_models_tiny.questions import questions  # noqa: E402
from agentfly_models_tiny.room_demonstrations import room_demonstrations  # noqa: E402
from agentfly_models_tiny.tokenizer import CONTROL, build_tokenizer, save_tokenizer  # noqa: E402
from agentfly_templates_qwen.families import QWEN25  # noqa: E402

from agentfly_core.templates import TextCodec, load_tokenizer  # noqa: E402
from agentfly_core.templates.check import check_template  # noqa: E402
from agentfly_core.templates.reference import Reference  # noqa: E402
from agentfly_core.templates.replay import replay  # noqa: E402
from agentfly_core.tools.calculator import calculator  # noqa: E402

FOLDER = model_folder()
TOOLS = [calculator.schema()]
COMMON = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Zażółć 東京 🦊 <|im_end|> ?"},
    {"role": "assistant", "content": "Two calls.", "tool_calls": [
        {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1+2"}}},
        {"type": "function", "function": {"name": "other", "arguments": {"ключ": [1, None, "<b>"], "x": 1.5}}},
    ]},
    {"role": "tool", "content": "3"},
    {"role": "tool", "content": " spaced\n"},
    {"role": "assistant", "content": "Done."},
    {"role": "system", "content": "Later."},
    {"role": "user", "content": ""},
]  # fmt: skip


@pytest.fixture(scope="module")
def template():
    return QWEN25.bind(load_tokenizer(FOLDER))


@pytest.fixture(scope="module")
def reference():
    return Reference.load(FOLDER)


@pytest.fixture(scope="module")
def codec():
    return TextCodec(load_tokenizer(FOLDER))


def conversations():
    for row in [*islice(demonstrations(9, correct=50, mixed=100), 150)]:
        yield row["messages"], TOOLS
    for row in islice(room_demonstrations(9), 30):
        yield row["messages"], []


def test_the_packaged_tokenizer_is_what_is_built_today(tmp_path):
    """If this fails, a text it was built from has changed (the calculator's schema, say): rebuild the model."""
    save_tokenizer(build_tokenizer(), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_its_own_template_agrees_with_the_qwen25_family(reference):
    steps = check_template(QWEN25, load_tokenizer(FOLDER), reference)
    assert [step for step in steps if step.misfit] == []
    differ = {step.probe for step in steps if not step.append_equal}
    assert differ == {"turn begins with newlines", "turn ended on another stop token"}  # as with the real tokenizer


def test_demonstrations_have_the_ids_of_the_templates_own_rendering(template, reference, codec):
    for messages, tools in conversations():
        (segment,) = replay(template, messages, tools)
        rendered = reference.render(messages, tools, generation_prompt=False)
        assert list(segment.token_ids) == codec.encode(rendered.removesuffix("\n"))


@pytest.mark.parametrize("tools", [[], TOOLS, [TOOLS[0], {"type": "function", "function": {"name": "x"}}]])
@pytest.mark.parametrize("generation", [True, False])
def test_any_conversation_renders_as_in_the_family(template, reference, tools, generation):
    for messages in (COMMON, COMMON[1:], COMMON[1:2], COMMON[:1]):
        rendered = reference.render(messages, tools, generation_prompt=generation)
        ours = template.decode(template.encode_prompt(messages, tools))
        assert ours == rendered + ("" if generation else "<|im_start|>assistant\n")


def test_the_prompt_is_short(template):
    longest = max(
        len(template.encode_prompt([{"role": "user", "content": row["prompt"]}], TOOLS))
        for row in islice(questions("eval"), 500)
    )
    assert longest <= 50


def test_digits_stand_alone_and_any_text_survives(codec):
    vocabulary = load_tokenizer(FOLDER).get_vocab()
    assert [t for t in vocabulary if any(c.isdigit() for c in t) and len(t) > 1] == []
    assert len(codec.encode("1234567890")) == 10
    for text in ("Zażółć gęślą jaźń", "東京 🦊\u0301", "\x00\x7f\t\r\n", " 12  34 "):
        assert codec.decode(codec.encode(text)) == text
    assert all(text in vocabulary for text in CONTROL)
    assert len(vocabulary) == 1024


def test_the_folder_is_an_ordinary_small_model():
    config = json.loads((FOLDER / "config.json").read_text())
    shape = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    assert [config[k] for k in shape] == ["qwen2", 128, 3, 4, 2]
    assert (config["intermediate_size"], config["max_position_embeddings"]) == (256, 4096)
    assert config["tie_word_embeddings"] is True
    tokenizer = load_tokenizer(FOLDER)
    assert config["vocab_size"] == tokenizer.get_vocab_size()
    assert config["eos_token_id"] == tokenizer.token_to_id("<|im_end|>")
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    assert 1_000_000 < size < 2_000_000
