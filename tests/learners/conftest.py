"""A tiny random model with a tokenizer, and a plugin file with a template and rewards of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PLUGIN = '''
from agentfly_core import hookimpl, reward, tool
from agentfly_core.templates.base import TextTemplate
from agentfly_core.templates.codec import Rendered
from agentfly_core.types import AssistantTurn, ToolCall


class PlainFormat:
    """Roles between delimiters; a reply with a "!" calls the tool ``look``."""

    name = "plain"
    control = ("<|im_start|>", "<|im_end|>")
    stops = ("<|im_end|>",)

    def __init__(self, rewrites=False):
        self.rewrites = rewrites

    def prompt(self, messages, tools):
        out = Rendered()
        if tools:
            out.own("tools: " + ", ".join(t["function"]["name"] for t in tools) + "\\n")
        for i, m in enumerate(messages):
            shown = "(old)" if self.rewrites and m["role"] == "assistant" else m["content"]
            self._one(out, m["role"], shown)
        out.own("<|im_start|>assistant\\n")
        return out

    def observation(self, messages):
        out = Rendered()
        out.own("\\n")
        for m in messages:
            self._one(out, m["role"], m["content"])
        out.own("<|im_start|>assistant\\n")
        return out

    def _one(self, out, role, content):
        out.own(f"<|im_start|>{role}\\n")
        out.content(content)
        out.own("<|im_end|>\\n")

    def reply(self, message, where):
        out = Rendered()
        out.own(message["content"])
        return out

    def parse(self, text):
        return AssistantTurn(text, calls=(ToolCall("look", {}),) if "!" in text else ())


class PlainFamily:
    name = "plain"

    def bind(self, tokenizer, *, history="append"):
        return TextTemplate(PlainFormat(history == "template"), tokenizer, history)


@hookimpl
def register_templates(register):
    register(PlainFamily())


@tool
def look() -> str:
    """Look around."""
    return "a wall"


@reward
def letters(final_response: str) -> float:
    """Differs between most chains of a random model."""
    return sum(ord(letter) % 4 for letter in final_response) / 20


@reward
def broken(final_response: str) -> float:
    """Fails for half of the chains and gives NaN for others."""
    kind = sum(map(ord, final_response)) % 4
    if kind == 0:
        raise ValueError("no score")
    return float("nan") if kind == 1 else 0.25


@reward
def same() -> float:
    """Equal for all."""
    return 0.1


@reward
def never() -> float:
    """Fails for all."""
    raise ValueError("the judge is out")
'''


def tiny_tokenizer() -> Any:
    """One token a byte, and two control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    return tokenizer


def tiny_model(seed: int = 0, **changes: Any) -> Any:
    """A random Qwen2 over the bytes."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        **{
            "vocab_size": 258,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "tie_word_embeddings": True,
            "initializer_range": 0.2,
            **changes,
        }
    )
    return transformers.Qwen2ForCausalLM(config).eval()


@pytest.fixture
def make_model() -> Any:
    """The function ``tiny_model``."""
    return tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary Hugging Face folder. Not to be written to."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


@pytest.fixture(scope="session")
def plugin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin above as a file."""
    file = tmp_path_factory.mktemp("plugin") / "plain_plugin.py"
    file.write_text(PLUGIN, encoding="utf-8")
    return file
