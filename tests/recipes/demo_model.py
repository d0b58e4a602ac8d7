"""A model folder without weights: a byte-level tokenizer with the control tokens of the template ``mini``."""

from __future__ import annotations

from pathlib import Path

CONTROL = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")


def write_tokenizer(folder: Path, control: tuple[str, ...] = CONTROL) -> Path:
    """Write ``tokenizer.json``; the folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(control))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
