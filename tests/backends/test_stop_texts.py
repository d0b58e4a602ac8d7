"""Stop texts against decoding the whole turn after every id."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tokenizers = pytest.importorskip("tokenizers")

from agentfly_core.backends.stopping import StopTexts, load_decoder  # noqa: E402
from agentfly_core.types import MissingDependency, UsageError  # noqa: E402

PIECES = ["</", "answer", ">", "</answer>", "a>b", "ans", "wer>", " ", "\n", "é", "世", "🙂", "x"]


def byte_level():
    """One id a byte, and merges; control tokens; ids from 400 on are nobody's, as in a padded vocabulary."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["</answer> is the answer>", "x</answer>\n", "世界 世 🙂🙂"] * 3, trainer)
    return tokenizer


def byte_fallback():
    """Words with a mark for their space; what is not in the vocabulary is spelled in bytes, as sentencepiece does."""
    words = ["<unk>", "\u2581", "\u2581is", "</", "answer", ">", "x", "a", "\n"]
    vocabulary = {word: i for i, word in enumerate([*words, *(f"<0x{i:02X}>" for i in range(256))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    d = tokenizers.decoders
    tokenizer.decoder = d.Sequence([d.Replace("\u2581", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    return tokenizer, vocabulary


BYTE_LEVEL = byte_level()
BYTE_FALLBACK, WORDS = byte_fallback()


def first_end(tokenizer, ids, texts):
    """By definition: after how many ids the text of all of them holds one of the texts."""
    for end in range(1, len(ids) + 1):
        whole = tokenizer.decode(ids[:end], skip_special_tokens=False)
        if any(text in whole for text in texts):
            return end
    return None


def found_end(tokenizer, ids, texts, before=()):
    stops = StopTexts(tokenizer, texts)
    ids = [*before, *ids]
    return next(
        (i - len(before) for i in range(len(before) + 1, len(ids) + 1) if stops.appear(ids[:i], len(before))), None
    )


stop_texts = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(
    ids=st.lists(st.one_of(st.integers(0, 299), st.integers(400, 402)), max_size=40),
    text=st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    texts=stop_texts,
    place=st.integers(0, 40),
)
def test_byte_level(ids, text, texts, place):
    ids[place:place] = BYTE_LEVEL.encode(text).ids
    expected = first_end(BYTE_LEVEL, ids, texts)
    assert found_end(BYTE_LEVEL, ids, texts) == expected
    # What was there before the turn does not count, even where a text would begin in it.
    assert found_end(BYTE_LEVEL, ids, texts, before=BYTE_LEVEL.encode("</answer>世</answer").ids) == expected


def in_bytes(text):
    return [WORDS[f"<0x{byte:02X}>"] for byte in text.encode()]


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.one_of(
            st.sampled_from(["\u2581", "\u2581is", "</", "answer", ">", "x", "\n"]), st.text("é世🙂>x", max_size=30)
        ),
        max_size=12,
    ),
    texts=stop_texts,
)
def test_byte_fallback(parts, texts):
    ids = [id for part in parts for id in ([WORDS[part]] if part in WORDS else in_bytes(part))]
    assert found_end(BYTE_FALLBACK, ids, texts) == first_end(BYTE_FALLBACK, ids, texts)


def test_a_text_behind_a_long_run_of_split_characters():
    for text in ("🛑", "世🛑"):
        assert found_end(BYTE_FALLBACK, in_bytes("🙂" * 100 + "世🛑x"), [text]) == 100 * 4 + 3 + 4
    ids = [BYTES[byte] for byte in ("🙂" * 100 + "世🛑x").encode()]
    assert found_end(BYTE_LEVEL, ids, ["世🛑"]) == 100 * 4 + 3 + 4


BYTES = {byte: BYTE_LEVEL.token_to_id(c) for byte, c in zip(
    [*range(33, 127), *range(161, 173), *range(174, 256)],
    [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))],
    strict=True,
)} | {n: BYTE_LEVEL.token_to_id(chr(256 + i)) for i, n in enumerate([*range(33), *range(127, 161), 173])}  # fmt: skip
"""Ids of single bytes, by the table of GPT-2."""


def test_control_tokens_count_as_their_text():
    end = BYTE_LEVEL.token_to_id("<|end|>")
    assert found_end(BYTE_LEVEL, [5, end, 6], ["|end|"]) == 2


def test_ids_without_a_text_do_not_push_a_text_out_of_sight():
    ids = [i for token in BYTE_LEVEL.encode("a</answer>").ids for i in (token, *[400] * 50)]
    assert found_end(BYTE_LEVEL, ids, ["</answer>"]) == first_end(BYTE_LEVEL, ids, ["</answer>"])


def test_the_work_of_an_id_does_not_grow_with_the_turn():
    class Counting:
        decoded = 0

        def decode(self, ids, skip_special_tokens=True):
            self.decoded += len(ids)
            return BYTE_LEVEL.decode(ids, skip_special_tokens=skip_special_tokens)

    source = random.Random(0)
    for words in (["x", ">", "</answer", "🙂"], [">"], [BYTE_LEVEL.id_to_token(i) for i in (200, 201)]):
        ids = [token for _ in range(3000) for token in BYTE_LEVEL.encode(source.choice(words)).ids]
        tokenizer = Counting()
        stops = StopTexts(tokenizer, ["</answer>!"])
        work = []
        for end in range(1, 3001):
            before = tokenizer.decoded
            assert not stops.appear(ids[:end])
            work.append(tokenizer.decoded - before)
        assert sum(work[2000:]) <= 1.2 * sum(work[1000:2000]) + 100
        assert max(work[1000:]) <= 4 * 4 * 11


def test_most_ids_are_dismissed_without_decoding_the_window():
    class Counting:
        calls = 0

        def decode(self, ids, skip_special_tokens=True):
            self.calls += 1
            return BYTE_LEVEL.decode(ids, skip_special_tokens=skip_special_tokens)

    tokenizer = Counting()
    stops = StopTexts(tokenizer, ["</answer>"])
    ids = BYTE_LEVEL.encode("x y " * 500).ids
    assert not any(stops.appear(ids[:end]) for end in range(1, len(ids) + 1))
    assert tokenizer.calls == len(set(ids))


def test_the_tokenizer_beside_a_model(tmp_path):
    BYTE_LEVEL.save(str(tmp_path / "tokenizer.json"))
    assert load_decoder(tmp_path).decode([5], skip_special_tokens=False) == BYTE_LEVEL.decode([5])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer file"):
        load_decoder(tmp_path)
    with pytest.raises(UsageError, match="the backend was given a module: give the model's folder"):
        load_decoder(object())


def test_a_model_without_a_tokenizer(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"but there is no .*tokenizer\.json"):
        load_decoder(str(tmp_path))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependency, match=r"agentfly-core\[tokenizers\]"):
        load_decoder(tmp_path)


@pytest.mark.torch
def test_a_model_that_the_hub_does_not_have(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="the hub gives none for 'nobody/nothing'"):
        load_decoder("nobody/nothing")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r"agentfly-core\[local\]"):
        load_decoder("nobody/nothing")
