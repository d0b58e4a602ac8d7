"""What the hf backend samples is what plain forward passes would have sampled."""

from __future__ import annotations

import asyncio
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentfly_core.backends import batch as batch_module  # noqa: E402
from agentfly_core.types import GenerationBackend, GenerationRequest, SamplingParams, WaveBackend  # noqa: E402

pytestmark = pytest.mark.torch


def text(length, seed):
    return random.Random(seed).choices(range(50), k=length)


def ask(prompt, key=None, **sampling):
    sampling = {"max_tokens": 8, "seed": 1, **sampling}
    return GenerationRequest(prompt, SamplingParams(**sampling), chain_key=key)


def ask_all(backend, requests):
    async def everything():
        return await asyncio.gather(*(backend.generate(r) for r in requests))

    return asyncio.run(everything())


MIXED = [
    {"temperature": 1.0},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.6},
    {"temperature": 0.0, "top_p": 0.5},
    {"temperature": 1.0, "stop_token_ids": tuple(range(10))},
]


@pytest.mark.parametrize("name", ["qwen2", "llama", "gpt2", "mistral", "gemma2"])
def test_ragged_prompts_with_mixed_sampling(name, tiny_model, make_backend, reference, same):
    model = tiny_model(name)
    backend = make_backend(model)
    requests = [ask(text(2 + 5 * i % 17, i), seed=i, max_tokens=4 + i % 9, **MIXED[i % 8]) for i in range(24)]
    for request, got in zip(requests, ask_all(backend, requests), strict=True):
        same(got, reference(model, request))


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "mistral"])
def test_chains_that_come_go_and_return_in_any_order(name, tiny_model, make_backend, reference, same):
    """Small batch and cache: rows are swapped, kept, evicted and resumed all the time."""
    model = tiny_model(name)
    backend = make_backend(model, max_batch=5)
    asked = []

    async def chain(number):
        source = random.Random(number)
        ids = text(source.randint(1, 20), number // 3)
        for turn in range(3):
            for _ in range(source.randint(0, 30)):
                await asyncio.sleep(0.0005)
            sampling = {"max_tokens": source.randint(1, 12), "stop_token_ids": (1, 2, 3)}
            request = ask(list(ids), ("t", number, 0), seed=10 * number + turn, **sampling)
            got = await backend.generate(request)
            asked.append((request, got))
            ids += [*got.token_ids, *text(source.randint(0, 6), turn)]

    async def everything():
        await asyncio.gather(*(chain(i) for i in range(16)))

    asyncio.run(everything())
    assert len(asked) == 48
    for request, got in asked:
        same(got, reference(model, request))


def test_a_kept_row_among_running_ones_stays_as_it_is(tiny_model, make_backend, fed_tokens, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    first = [ask(text(5 + i, i), ("t", i, 0), seed=i, max_tokens=4 if i == 0 else 40) for i in range(12)]

    async def chain(request):
        turn = await backend.generate(request)
        if request.chain_key != ("t", 0, 0):
            return request, turn
        await asyncio.sleep(0.02)  # the others run on over the kept row
        request = ask([*request.prompt_ids, *turn.token_ids, 5], ("t", 0, 0), seed=77)
        return request, await backend.generate(request)

    async def everything():
        return await asyncio.gather(*(chain(request) for request in first))

    for request, got in asyncio.run(everything()):
        same(got, reference(model, request))
    assert fed_tokens[-1] == 2


def test_memory_too_small_for_all_makes_rows_wait(tiny_model, make_backend, reference, same):
    model = tiny_model()
    token_bytes = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, dim, float32
    backend = make_backend(model, cache_gib=2 * 128 * token_bytes / 2**30)  # two rows of 128 tokens
    requests = [ask(text(n, n), ("t", n, 0), seed=n, max_tokens=6) for n in (3, 100, 5, 90, 7, 110, 4, 60, 8)]
    for _ in range(2):
        for request, got in zip(requests, ask_all(backend, requests), strict=True):
            same(got, reference(model, request))


def test_a_long_prompt_is_fed_in_pieces(tiny_model, make_backend, reference, same, monkeypatch):
    monkeypatch.setattr(batch_module, "PREFILL_TOKENS", 16)
    model = tiny_model("mistral")
    requests = [ask(text(n, n), seed=n) for n in (90, 3, 100, 33, 7, 16, 17)]
    for request, got in zip(requests, ask_all(make_backend(model), requests), strict=True):
        same(got, reference(model, request))


def test_the_longest_possible_request(tiny_model, make_backend, reference, same):
    model = tiny_model("gpt2")  # learned positions: a position too far would be an index error
    requests = [ask(text(120, 1)), ask(text(3, 2)), ask(text(1, 3), max_tokens=127)]
    for request, got in zip(requests, ask_all(make_backend(model), requests), strict=True):
        same(got, reference(model, request))


def test_logprobs_are_those_of_a_learners_full_pass(tiny_model, make_backend):
    model = tiny_model()
    prompt = text(20, 0)
    (got,) = ask_all(make_backend(model), [ask(prompt, temperature=0.8, max_tokens=40)])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *got.token_ids]])).logits[0, 19:-1] / 0.8
    want = torch.log_softmax(logits, -1).gather(1, torch.tensor(got.token_ids)[:, None])[:, 0]
    assert torch.tensor(got.logprobs) == pytest.approx(want, abs=1e-5)


def test_equal_prompts_are_run_once(tiny_model, make_backend, fed_tokens):
    backend = make_backend(tiny_model())
    prompt = text(20, 0)
    asyncio.run(backend.generate_wave([ask(prompt, seed=i, max_tokens=1) for i in range(8)]))
    assert fed_tokens == [20]


def test_the_next_turn_feeds_only_what_is_new(tiny_model, make_backend, fed_tokens, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    first = ask(text(20, 0), ("t", 0, 0), max_tokens=6)
    (turn,) = ask_all(backend, [first])
    second = ask([*first.prompt_ids, *turn.token_ids, 7, 8, 9], ("t", 0, 0), seed=2)
    (got,) = ask_all(backend, [second])
    assert fed_tokens == [20, 1 + 3]  # the last sampled token was never fed
    same(got, reference(model, second))


def test_a_prefix_that_differs_is_not_reused(tiny_model, make_backend, fed_tokens, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    first = ask(text(20, 0), ("t", 0, 0), max_tokens=6)
    ask_all(backend, [first])
    second = ask(text(40, 1), ("t", 0, 0))
    (got,) = ask_all(backend, [second])
    assert fed_tokens == [20, 40]
    same(got, reference(model, second))


def test_a_seed_gives_the_same_tokens_in_any_company(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    request = ask(text(9, 0), seed=123, max_tokens=20)
    (alone,) = ask_all(backend, [request])
    company = [ask(text(3 + i, i), seed=i, max_tokens=3 + i, **MIXED[i % 8]) for i in range(20)]
    among = ask_all(backend, [*company[:7], request, *company[7:]])[7]
    assert among.token_ids == alone.token_ids


def test_no_seed_draws_a_fresh_one(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    drawn = {g.token_ids for g in ask_all(backend, [ask([1, 2], seed=None, max_tokens=30) for _ in range(8)])}
    assert len(drawn) == 8


def test_a_sampled_stop_id_is_kept_and_ends_the_turn(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    (free,) = ask_all(backend, [ask([1, 2, 3], max_tokens=10)])
    stop = free.token_ids[4]
    (stopped,) = ask_all(backend, [ask([1, 2, 3], max_tokens=10, stop_token_ids=(stop,))])
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert (stopped.finish_reason, free.finish_reason) == ("stop", "length")


def test_a_wave_repeated_with_equal_weights_gives_equal_bits(tiny_model, make_backend):
    model = tiny_model()
    backend = make_backend(model, max_batch=7)

    def two_turns():
        prompts = [text(5 + i % 9, i // 4) for i in range(20)]
        first = [ask(p, ("t", i, 0), seed=i, stop_token_ids=(1, 2)) for i, p in enumerate(prompts)]
        turns = asyncio.run(backend.generate_wave(first))
        second = [
            ask([*p, *t.token_ids, 3, 4], ("t", i, 0), seed=99 + i)
            for i, (p, t) in enumerate(zip(prompts, turns, strict=True))
        ]
        return turns, asyncio.run(backend.generate_wave(second[3:]))

    once = two_turns()
    ask_all(backend, [ask(text(30, 5), ("x", i, 0), max_tokens=60) for i in range(9)])
    assert two_turns() == once
    asyncio.run(backend.update_weights(model.state_dict(), 0))
    assert two_turns() == once


def test_a_wave_samples_what_single_requests_do(tiny_model, make_backend, reference, same):
    model = tiny_model()
    requests = [ask(text(3 + i, i), seed=i) for i in range(6)]
    for request, got in zip(requests, asyncio.run(make_backend(model).generate_wave(requests)), strict=True):
        same(got, reference(model, request))


def test_it_is_both_kinds_of_backend_and_an_empty_wave_is_empty(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    assert isinstance(backend, GenerationBackend)
    assert isinstance(backend, WaveBackend)
    assert asyncio.run(backend.generate_wave([])) == []


@pytest.fixture
def fed_tokens(monkeypatch):
    """Counts of the tokens that each prefill pass fed, filled as the test runs; the trial passes at start left out."""
    from agentfly_core.backends.runner import ModelRunner

    counts, feed, verify = [], ModelRunner.feed, ModelRunner.verify

    def counting(self, cache, rows, ids, bases):
        counts.append(sum(map(len, ids)))
        return feed(self, cache, rows, ids, bases)

    def quiet(self, cache):
        verify(self, cache)
        counts.clear()

    monkeypatch.setattr(ModelRunner, "feed", counting)
    monkeypatch.setattr(ModelRunner, "verify", quiet)
    return counts
