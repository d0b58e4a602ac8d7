"""``check_backend`` passes good backends and finds what is wrong with others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentfly_core.testing import ScriptedBackend, check_backend
from agentfly_core.types import GenerationRequest


def turns(request: GenerationRequest):
    """Ids that depend on prompt and seed alone."""
    start = sum(request.prompt_ids) + (request.sampling.seed or 0)
    return [start + i for i in range(20) if start + i not in request.sampling.forbidden_token_ids]


class Letters:
    """Ids as letters, three of them for two ids."""

    def encode(self, sequence, *, add_special_tokens):
        raise AssertionError("the turns are ids")

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(ord("a") + i) * (1 + i % 2) for i in ids)


class Spoiled(ScriptedBackend):
    """A good backend whose generations a test changes."""

    def __init__(self, change, **options):
        super().__init__(turns, **options)
        self.change = change

    async def generate(self, request):
        return self.change(await super().generate(request), len(self.requests))


def test_the_scripted_backend_passes():
    check_backend(ScriptedBackend(turns), weights={})
    check_backend(ScriptedBackend(turns, max_model_len=30))
    check_backend(ScriptedBackend(turns, Letters()), tokenizer=Letters())


@pytest.mark.torch
def test_the_hf_backend_passes():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from agentfly_core.backends.hf import HFBackend

    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    backend = HFBackend(transformers.Qwen2ForCausalLM(config), device="cpu")
    try:
        check_backend(backend, weights=dict(backend.model.state_dict()))
    finally:
        asyncio.run(backend.close())


def test_what_is_no_backend(found):
    with found("it lacks weight_version, max_model_len, generate"):
        check_backend(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda g, n: replace(g, token_ids=(), logprobs=()), "0 ids for max_tokens 8"),
        (lambda g, n: replace(g, logprobs=(0.5,) * len(g.token_ids)), "logprobs (0.5"),
        (lambda g, n: replace(g, finish_reason="stop"), "finish reason 'stop' after 8 ids"),
        (lambda g, n: replace(g, weight_version=3), "versions 3 and 0 of weights 0"),
        (lambda g, n: g.token_ids, "it returned (6, 7"),
        (lambda g, n: replace(g, token_ids=tuple(i + n for i in g.token_ids)), "the same seed and prompt gave other"),
        (lambda g, n: replace(g, logprobs=tuple(p - n for p in g.logprobs)), "logprobs differ from those"),
    ],
)  # fmt: skip
def test_broken_generations_are_found(change, text, found):
    with found(text):
        check_backend(Spoiled(change))


@pytest.mark.parametrize(
    ("ignored", "text"), [("stop", "it gave Generation(token_ids=(6, 7, 8"), ("forbidden_token_ids", "is likeliest")]
)
def test_a_backend_that_ignores_part_of_the_sampling(ignored, text, found):
    class Broken(ScriptedBackend):
        async def generate(self, request):
            return await super().generate(replace(request, sampling=replace(request.sampling, **{ignored: ()})))

    with found(text):
        check_backend(Broken(turns, Letters()), tokenizer=Letters())


def test_a_backend_that_stops_a_token_late_and_one_that_renormalises(found):
    class Late(ScriptedBackend):
        async def generate(self, request):
            free = await super().generate(replace(request, sampling=replace(request.sampling, stop=())))
            end = len((await super().generate(request)).token_ids)
            return replace(free, token_ids=free.token_ids[: end + 1], logprobs=free.logprobs[: end + 1])

    with found("it gave Generation(token_ids=(6, 7, 8, 9, 10), "):
        check_backend(Late(turns, Letters()), tokenizer=Letters())

    class Renormalised(ScriptedBackend):
        async def generate(self, request):
            got = await super().generate(request)
            part = 0.9 if request.sampling.forbidden_token_ids else 1.0
            return replace(got, logprobs=tuple(part * p for p in got.logprobs))

    with found("logprobs differ from those without it"):
        check_backend(Renormalised(turns))


def test_a_backend_that_ignores_stop_tokens(found):
    class Broken(ScriptedBackend):
        async def generate(self, request):
            return await super().generate(replace(request, sampling=replace(request.sampling, stop_token_ids=())))

    with found("sampling went on after stop token"):
        check_backend(Broken(turns))


def test_a_backend_that_serves_what_is_too_long(found):
    class Broken(ScriptedBackend):
        max_model_len = 10

    with found("it is served"):
        check_backend(Broken(turns))


def test_a_backend_that_raises_the_wrong_error(found):
    class Broken(ScriptedBackend):
        max_model_len = 10

        async def generate(self, request):
            if request.sampling.max_tokens == 10:
                raise IndexError("out of range")
            return await super().generate(request)

    with found("it raised IndexError"):
        check_backend(Broken(turns))


def test_a_backend_that_forgets_the_version(found):
    class Broken(ScriptedBackend):
        async def update_weights(self, weights, version):
            pass

    with found("the version is 0, not 1"):
        check_backend(Broken(turns), weights={})


def test_a_wave_out_of_order(found):
    class Broken(ScriptedBackend):
        async def generate_wave(self, requests):
            return (await super().generate_wave(requests))[::-1]

    with found("the same seed and prompt gave other ids than alone"):
        check_backend(Broken(turns))


def test_a_backend_that_does_not_let_go(found):
    class Broken(ScriptedBackend):
        async def generate(self, request):
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                await asyncio.sleep(30)
            return await super().generate(request)

    with found("it does not end"):
        check_backend(Broken(turns), timeout=0.4)
