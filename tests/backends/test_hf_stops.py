"""The hf backend with stop texts and forbidden ids, against what it samples without."""

from __future__ import annotations

import asyncio
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from agentfly_core.testing import check_backend  # noqa: E402
from agentfly_core.types import GenerationRequest, SamplingParams, UsageError  # noqa: E402

pytestmark = pytest.mark.torch

WORDS = ["ab", "a", "b", "ba", ">", "c>", "</", " ", "cab", "x"] * 5


def spell(ids):
    return "".join(WORDS[i] for i in ids)


def write_tokenizer(folder, words=None):
    words = [f"{word}{n // 10 or ''}" for n, word in enumerate(WORDS)] if words is None else words
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[0])
    )
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


@pytest.fixture
def folder(tmp_path, tiny_model):
    """A model of 50 ids, each with a text; a number makes those of the same letters differ."""
    tiny_model().save_pretrained(tmp_path)
    return tmp_path


def ask(number, **sampling):
    source = random.Random(number)
    prompt = source.choices(range(50), k=source.randint(2, 20))
    sampling = {"max_tokens": source.randint(4, 20), "seed": number, **sampling}
    return GenerationRequest(prompt, SamplingParams(**sampling), chain_key=("t", number, 0))


def sample(backend, requests, wave=False):
    async def everything():
        if wave:
            return await backend.generate_wave(requests)
        return await asyncio.gather(*(backend.generate(r) for r in requests))

    return asyncio.run(everything())


@pytest.mark.parametrize("wave", [False, True])
def test_a_turn_is_the_one_without_up_to_the_id_that_completes_a_text(folder, make_backend, wave):
    tokenizer = write_tokenizer(folder)
    backend = make_backend(folder, max_batch=7)
    free = sample(backend, [ask(i) for i in range(24)])
    text_of = [[tokenizer.decode(g.token_ids[:n]) for n in range(len(g.token_ids) + 1)] for g in free]
    stops = [("b2", "4c>"), ("</1",), ("a", "never sampled"), ("2", "b>"), ("never sampled",)]
    asked = [ask(i, stop=stops[i % 5]) if i % 4 else ask(i) for i in range(24)]
    reasons = set()
    for request, got, whole, texts in zip(asked, sample(backend, asked, wave), free, text_of, strict=True):
        ends = [n for n, t in enumerate(texts) if any(stop in t for stop in request.sampling.stop)]
        end = ends[0] if ends else len(whole.token_ids)
        assert got.token_ids == whole.token_ids[:end]
        assert got.logprobs == pytest.approx(whole.logprobs[:end], abs=1e-5)
        assert got.finish_reason == ("stop" if ends else "length")
        reasons.add((got.finish_reason, bool(request.sampling.stop)))
    assert reasons == {("stop", True), ("length", True), ("length", False)}


def test_a_turn_that_a_text_ended_is_gone_on_from(folder, make_backend, reference, same):
    """The chain's next turn resumes from what is cached, as after any other turn."""
    tokenizer = write_tokenizer(folder)
    backend = make_backend(folder)
    first = ask(3, max_tokens=12)
    stop = tokenizer.decode(reference(backend.model, first).token_ids[4:6])
    got = sample(backend, [ask(3, max_tokens=12, stop=(stop,))])[0]
    assert len(got.token_ids) <= 6
    assert got.finish_reason == "stop"
    again = GenerationRequest([*first.prompt_ids, *got.token_ids, 7, 8], first.sampling, chain_key=first.chain_key)
    same(sample(backend, [again])[0], reference(backend.model, again))


def test_forbidden_ids_are_left_out_and_neighbours_are_not_touched(folder, make_backend, reference, same):
    backend = make_backend(folder)
    forbidden = tuple(range(0, 50, 3))
    plain = [ask(i, temperature=(i % 3) / 2) for i in range(20)]
    asked = [ask(i, temperature=(i % 3) / 2, forbidden_token_ids=forbidden) if i % 2 else plain[i] for i in range(20)]
    for number, got in enumerate(sample(backend, asked)):
        request = asked[number]
        if number % 2 == 0:
            same(got, reference(backend.model, request))
            continue
        assert not set(got.token_ids) & set(forbidden)
        ids = torch.tensor([[*request.prompt_ids, *got.token_ids]])
        logits = backend.model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
        logprobs = torch.log_softmax(logits / (request.sampling.temperature or 1.0), -1)
        assert got.logprobs == pytest.approx(
            logprobs.gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0].tolist(), abs=1e-5
        )


def test_the_contract_with_a_tokenizer(folder, make_backend):
    tokenizer = write_tokenizer(folder)
    check_backend(make_backend(folder), tokenizer=tokenizer)


def test_the_tokenizer_is_read_with_the_first_stop_text(folder, make_backend):
    backend = make_backend(folder)
    assert len(sample(backend, [ask(0)])) == 1
    with pytest.raises(UsageError, match="stop texts need the model's tokenizer"):
        sample(backend, [ask(0, stop=("a",))])
    write_tokenizer(folder)
    assert len(sample(backend, [ask(0, stop=("a",))])) == 1
    (folder / "tokenizer.json").unlink()
    assert len(sample(backend, [ask(0, stop=("b",))])) == 1


def test_a_module_has_no_tokenizer_and_ids_must_be_the_models(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    with pytest.raises(UsageError, match="give the model's folder instead, or no `stop`"):
        sample(backend, [ask(0, stop=("a",))])
    with pytest.raises(UsageError, match="forbidden id 50 is outside the model's vocabulary of 50"):
        sample(backend, [ask(0, forbidden_token_ids=(50,))])
    with pytest.raises(UsageError, match="forbids every id"):
        sample(backend, [ask(0, forbidden_token_ids=(*range(50), 7))])
