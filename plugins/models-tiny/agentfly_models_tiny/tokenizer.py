"""The tokenizer and chat template of the tiny model: Qwen2.5's chat format in few tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_templates_qwen.formats import Qwen25Format

from agentfly_core.tools.calculator import calculator
from agentfly_core.types import MissingDependency
from agentfly_models_tiny.demonstrations import demonstrations
from agentfly_models_tiny.room_demonstrations import room_demonstrations

if TYPE_CHECKING:
    import tokenizers

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
END_OF_TURN, PADDING = "<|im_end|>", "<|endoftext|>"
ENTRIES = 1024
MAX_TOKEN_CHARS = 64
CALCULATIONS, ROOMS = 500, 50
"""Conversations of each kind that the merges are learned from."""


def build_tokenizer() -> tokenizers.Tokenizer:
    """A byte-level BPE that knows the phrases of the task and of the world.

    Merges may span words (there is no splitting at spaces), up to ``MAX_TOKEN_CHARS``: the whole prompt with its
    tool's schema takes some 45 tokens. Any other text falls back to bytes. Digits stand alone, so that numbers can be
    copied. Nothing is merged across the end of a line: so a reply has the same ids whether or not the line before it,
    ``assistant``, is encoded with it.
    """
    try:
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise MissingDependency("tokenizers", "the tiny model", "agentfly-core[local]") from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n+"), behavior="merged_with_previous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in CONTROL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_CHARS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_stretches(), trainer)
    return tokenizer


def save_tokenizer(tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """Write the files from which transformers and AgentFly load it."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TURN,
        "pad_token": PADDING,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _stretches() -> Iterator[str]:
    """What stands between control tokens in rendered conversations."""
    between = re.compile("|".join(map(re.escape, CONTROL)))
    for text in _texts():
        yield from filter(None, between.split(text))


def _texts() -> Iterator[str]:
    form = Qwen25Format()
    for row in islice(demonstrations(0, correct=CALCULATIONS // 2), CALCULATIONS):
        yield form.prompt(row["messages"], [calculator.schema()]).text
    for row in islice(room_demonstrations(0), ROOMS):
        yield form.prompt(row["messages"]).text
