"""Encoding: one call, contents that stay contents, tokenizers with surprises."""

from __future__ import annotations

import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.templates import Rendered, TextCodec
from agentfly_core.types import UsageError

tokenizers = pytest.importorskip("tokenizers")

CONTROL = ("<s>", "<|a|>", "<|ab|>")


def train(normalizer=None, merges=("hello", "\nworld", "[x]")):
    """A byte-level tokenizer that knows some words; control ids 0 to 2, bytes from 3."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(CONTROL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*merges] * 10, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return train()


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TextCodec(tokenizer, CONTROL[:2])


def rendered(*pieces):
    """Pieces alternate: own text, content, own text, ..."""
    out = Rendered()
    for i, piece in enumerate(pieces):
        out.content(piece) if i % 2 else out.own(piece)
    return out


def test_delimiters_and_contents_are_one_call(codec, tokenizer):
    whole = tokenizer.encode("<s>\nworld", add_special_tokens=False).ids
    assert len(whole) == 2
    assert codec.encode(rendered("<s>\n", "world")) == whole
    assert codec.encode("<s>\nworld") == whole


def test_control_text_in_contents_is_spelled(codec):
    ids = codec.encode(rendered("<s>", "<|a|>", "<s>"))
    assert (ids[0], ids[-1]) == (0, 0)
    assert [i for i in ids if i < 3] == [0, 0]
    assert codec.decode(ids) == "<s><|a|><s>"


def test_a_content_by_itself_is_one_call_without_control_tokens(codec, tokenizer):
    assert codec.encode_content("hello\nworld") == tokenizer.encode("hello\nworld", add_special_tokens=False).ids
    ids = codec.encode_content("hello<|ab|>\nworld")
    assert min(ids) >= 3
    assert codec.decode(ids) == "hello<|ab|>\nworld"
    assert ids[-1] == tokenizer.encode("\nworld", add_special_tokens=False).ids[-1]
    assert codec.encode_content("") == []


def test_stretches_between_own_tokens_are_encoded_whole(codec, tokenizer):
    """Own text beside a content joins it in one call, on the safe path too."""
    ids = codec.encode(rendered("<s>\n", "world<|a|>", "<s>"))
    assert ids[:2] == tokenizer.encode("<s>\nworld", add_special_tokens=False).ids


def test_the_longest_control_token_counts(codec):
    assert codec.encode("<|ab|>") == [2]
    assert [i for i in codec.encode(rendered("<|ab|>", "<|ab|>", "<|a|>")) if i < 3] == [2, 1]


def test_missing_control_tokens_are_named(tokenizer):
    with pytest.raises(UsageError, match=r"no control token <\|x\|>, <\|y\|> \(it has <s>, <\|ab\|>, <\|a\|>\)"):
        TextCodec(tokenizer, ["<s>", "<|x|>", "<|y|>"])
    # A word of the vocabulary is no control token.
    assert tokenizer.token_to_id("hello") is not None
    with pytest.raises(UsageError, match="no control token hello"):
        TextCodec(tokenizer, ["hello"])


def test_ids_by_text(codec):
    assert [codec.id(text) for text in CONTROL] == [0, 1, 2]
    with pytest.raises(UsageError, match="no control token 'hello'"):
        codec.id("hello")


def test_truncation_and_padding_of_the_file_do_not_apply(tokenizer):
    other = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    other.enable_truncation(3)
    other.enable_padding(length=20)
    text = "a longer text than three tokens"
    assert TextCodec(other).encode(text) == tokenizer.encode(text).ids
    assert other.truncation is not None  # the caller's own is left as it was


def test_special_tokens_of_a_post_processor_are_not_added(tokenizer):
    other = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    other.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert other.encode("a").ids[0] == 0
    assert 0 not in TextCodec(other).encode("a")


def test_a_model_that_spells_a_control_token_is_refused():
    vocab = {"[x]": 0, "[": 1, "x": 2, "]": 3, "[x": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("[", "x"), ("[x", "]")]))
    tokenizer.add_special_tokens(["[x]"])
    with pytest.raises(UsageError, match=r"makes '\[x\]' of ordinary text"):
        TextCodec(tokenizer, ["[x]"])


def test_a_long_text_has_the_same_ids_and_lets_other_threads_run(codec, tokenizer):
    long = "hello world, 42\n" * 40_000
    expected = tokenizer.encode(long[:64_000], add_special_tokens=False).ids
    assert codec.encode(rendered("", long[:64_000])) == expected
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            time.sleep(0.001)
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    ticks = 0
    codec.encode(rendered("", long))
    counted = ticks
    done.set()
    thread.join()
    assert counted >= 5  # a call that holds the interpreter's lock lets none through


def test_lone_surrogates(codec):
    assert codec.encode(rendered("<s>", "a\ud800")) == codec.encode("<s>a\ufffd")
    long = "\ud800" * 30_000
    assert codec.encode(rendered("<s>", long)) == [*codec.encode("<s>"), *codec.encode("\ufffd") * 30_000]


def test_control_text_that_normalising_makes():
    tokenizer = train(tokenizers.normalizers.NFKC())
    tokenizer.add_tokens([tokenizers.AddedToken("<call>", normalized=True)])
    codec = TextCodec(tokenizer)
    fullwidth = "\uff1ccall\uff1e"
    assert codec.id("<call>") in codec.encode(fullwidth)
    assert codec.id("<call>") not in codec.encode(rendered("", fullwidth))
    assert codec.encode(rendered("<call>", fullwidth)).count(codec.id("<call>")) == 1


def test_mixed_content():
    out = Rendered()
    out.mixed("a<|a|>b<s>", re.compile(r"(<s>)"))
    assert (out.pieces, out.contents, out.text) == (["a<|a|>b", "<s>"], [0], "a<|a|>b<s>")


text = st.lists(st.sampled_from(["hello", "\n", "world", "é", "🙂", " ", "<", *CONTROL]), max_size=6).map("".join)
harmless = text.filter(lambda t: not any(c in t for c in CONTROL))


@given(parts=st.lists(st.tuples(text, harmless), max_size=4))
def test_harmless_contents_change_nothing(codec, tokenizer, parts):
    pieces = [piece for pair in parts for piece in pair]
    # No control token may arise where two pieces meet.
    whole = "".join(f"{p} " for p in pieces)
    assert codec.encode(rendered(*(f"{p} " for p in pieces))) == tokenizer.encode(whole, add_special_tokens=False).ids


@given(parts=st.lists(st.tuples(text, text), max_size=4))
def test_only_own_control_tokens_become_ids(codec, parts):
    pieces = [f"{piece} " for pair in parts for piece in pair]
    ids = codec.encode(rendered(*pieces))
    own = [m for piece in pieces[::2] for m in re.findall(r"<\|ab\|>|<\|a\|>|<s>", piece)]
    assert [i for i in ids if i < 3] == [CONTROL.index(m) for m in own]
    assert codec.decode(ids) == "".join(pieces)
