"""Limits, cancellation, errors, weight updates, several loops, closing."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentfly_core.types import AgentFlyError, GenerationRequest, SamplingParams, UsageError  # noqa: E402

pytestmark = pytest.mark.torch


def ask(prompt=(1, 2, 3), key=None, **sampling):
    sampling = {"max_tokens": 8, "seed": 1, **sampling}
    return GenerationRequest(list(prompt), SamplingParams(**sampling), chain_key=key)


LONG = {"max_tokens": 100, "stop_token_ids": ()}


def generate(backend, request):
    return asyncio.run(backend.generate(request))


async def started(backend):
    while not backend._batch.live():  # noqa: ASYNC110 - the other side is a thread
        await asyncio.sleep(0.001)


class Held:
    """Holds the model's passes back until released, and may make them fail."""

    def __init__(self, backend):
        self.gate = threading.Event()
        self.error = None
        self.rows = []
        forward = backend._batch._runner.forward

        def held(cache, rows, *args, **kwargs):
            self.gate.wait(60)
            self.rows.append(len(rows))
            if self.error:
                raise self.error
            return forward(cache, rows, *args, **kwargs)

        backend._batch._runner.forward = held


def test_limits_are_refused_before_anything_is_queued(tiny_model, make_backend):
    backend = make_backend(tiny_model(), max_model_len=20)
    assert backend.max_model_len == 20
    assert make_backend(tiny_model()).max_model_len == 128
    with pytest.raises(UsageError, match=r"13 tokens and max_tokens 8 exceed .* 20 tokens; .* at most 7"):
        generate(backend, ask(range(13)))
    with pytest.raises(UsageError, match="empty prompt"):
        generate(backend, ask([]))
    with pytest.raises(UsageError, match="prompt id 50 is outside the model's vocabulary of 50"):
        generate(backend, ask([1, 50]))
    with pytest.raises(UsageError, match="prompt id -1"):
        generate(backend, ask([-1]))
    with pytest.raises(UsageError, match="images"):
        generate(backend, GenerationRequest([1], SamplingParams(max_tokens=1), images=(object(),)))
    assert generate(backend, ask(range(12))).finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 129}, "max_model_len 129 exceeds .* 128"),
        ({"max_batch": 0}, "max_batch"),
        ({"threads": 0}, "threads"),
        ({"cache_gib": 0}, "cache_gib"),
    ],
)
def test_wrong_options(options, message, tiny_model, make_backend):
    with pytest.raises(UsageError, match=message):
        make_backend(tiny_model(), **options)


@pytest.mark.parametrize("name", ["bloom", "mamba", "gpt-neo"])
def test_an_architecture_it_cannot_run_is_refused(name, tiny_model, make_backend):
    with pytest.raises(UsageError, match="the hf backend cannot run"):
        make_backend(tiny_model(name))


def test_an_attention_that_takes_no_mask_is_refused(tiny_model, make_backend):
    model = tiny_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UsageError, match="'flash_attention_2' takes no mask"):
        make_backend(model)


def test_a_model_whose_cached_logits_differ_is_refused(tiny_model, make_backend):
    model = tiny_model()
    forward = model.forward

    def forgetful(input_ids, position_ids=None, attention_mask=None, cache=None, use_cache=None, logits_to_keep=0):
        return forward(input_ids, position_ids=position_ids, use_cache=False)

    model.forward = forgetful
    with pytest.raises(UsageError, match="cannot run Qwen2ForCausalLM"):
        make_backend(model)


def test_cancelling_frees_the_row(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    held = Held(backend)

    async def scenario():
        calls = [asyncio.create_task(backend.generate(ask(**LONG, key=("t", i, 0)))) for i in range(3)]
        await asyncio.sleep(0.01)
        calls[0].cancel()
        held.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [len(r.token_ids) for r in results[1:]] == [100, 100]

    asyncio.run(scenario())
    assert held.rows[-1] == 2


def test_cancelling_a_queued_request_and_a_wave(tiny_model, make_backend):
    backend = make_backend(tiny_model(), max_batch=1)

    async def scenario():
        running = asyncio.create_task(backend.generate(ask(**LONG)))
        await started(backend)
        queued = asyncio.create_task(backend.generate(ask()))
        wave = asyncio.create_task(backend.generate_wave([ask(**LONG), ask(**LONG)]))
        await asyncio.sleep(0)
        queued.cancel()
        wave.cancel()
        await asyncio.gather(queued, wave, return_exceptions=True)
        assert queued.cancelled()
        assert wave.cancelled()
        assert len((await running).token_ids) == 100
        assert len((await backend.generate(ask())).token_ids) == 8

    asyncio.run(scenario())


def test_a_failing_pass_fails_its_rows_and_no_others(tiny_model, make_backend, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    held = Held(backend)
    held.gate.set()
    held.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(AgentFlyError, match=r"a model pass over 1 rows failed: OutOfMemoryError.*lower max_batch"):
        generate(backend, ask())
    held.error = None
    same(generate(backend, ask()), reference(model, ask()))


def test_a_failing_step_fails_all_that_run_and_the_backend_goes_on(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    held = Held(backend)

    async def scenario():
        calls = [asyncio.create_task(backend.generate(ask(**LONG, seed=i))) for i in range(3)]
        held.gate.set()
        await started(backend)
        held.error = RuntimeError("broken")
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(r, AgentFlyError) and "RuntimeError: broken" in str(r) for r in results)
        held.error = None
        assert len((await backend.generate(ask())).token_ids) == 8

    asyncio.run(scenario())


def test_weights_that_are_not_numbers_fail_and_leave_no_trace(tiny_model, make_backend, reference, same):
    model = tiny_model()
    good = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    backend = make_backend(model)

    async def scenario():
        await backend.update_weights({name: t * float("nan") for name, t in good.items()}, 1)
        with pytest.raises(AgentFlyError, match=r"not finite \(weight version 1\)"):
            await backend.generate(ask())
        await backend.update_weights(good, 2)
        return await backend.generate(ask())

    same(asyncio.run(scenario()), reference(model, ask()))


def test_an_update_waits_for_what_runs_and_holds_back_what_comes(tiny_model, make_backend, reference, same):
    old, new = tiny_model(seed=0), tiny_model(seed=1)
    want = [reference(old, ask(**LONG)), reference(new, ask(seed=5))]
    backend = make_backend(old)

    async def scenario():
        running = asyncio.create_task(backend.generate(ask(**LONG)))
        await started(backend)
        update = asyncio.create_task(backend.update_weights(new.state_dict(), 7))
        await asyncio.sleep(0)
        later = asyncio.create_task(backend.generate(ask(seed=5)))
        return await running, await later, await update

    before, after, _ = asyncio.run(scenario())
    same(before, want[0])
    same(after, want[1])
    assert (before.weight_version, before.last_weight_version) == (0, 0)
    assert (after.weight_version, after.last_weight_version) == (7, 7)
    assert backend.weight_version == 7


def test_an_update_drops_what_was_cached(tiny_model, make_backend, reference, same):
    old, new = tiny_model(seed=0), tiny_model(seed=1)
    backend = make_backend(old)
    turn = generate(backend, ask(key=("t", 0, 0)))
    asyncio.run(backend.update_weights(new.state_dict(), 1))
    second = ask([1, 2, 3, *turn.token_ids, 4], ("t", 0, 0))
    same(generate(backend, second), reference(new, second))


def test_the_tensors_handed_over_stay_the_callers(tiny_model, make_backend, reference, same):
    model, learner = tiny_model(seed=0), tiny_model(seed=1)
    backend = make_backend(model)
    want = reference(learner, ask())
    asyncio.run(backend.update_weights(learner.state_dict(), 1))
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.mul_(0)
    same(generate(backend, ask()), want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "lack names .* model.norm.weight"),
        (lambda w: w.update(extra=torch.zeros(1)), "names that the model does not have: extra"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(3)}), r"model.norm.weight is \(3,\), .* \(32,\)"),
    ],
)
def test_wrong_weights_change_nothing(change, message, tiny_model, make_backend, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    want = reference(model, ask())
    weights = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    change(weights)
    with pytest.raises(UsageError, match=message):
        asyncio.run(backend.update_weights(weights, 1))
    assert backend.weight_version == 0
    same(generate(backend, ask()), want)


def test_tied_weights_need_one_name_and_must_agree(tiny_model, make_backend, reference, same):
    model, learner = tiny_model("qwen2-tied"), tiny_model("qwen2-tied", seed=1)
    backend = make_backend(model)
    weights = dict(learner.state_dict())
    asyncio.run(backend.update_weights(weights, 1))
    same(generate(backend, ask()), reference(learner, ask()))
    asyncio.run(backend.update_weights({n: t for n, t in weights.items() if n != "lm_head.weight"}, 2))
    weights["lm_head.weight"] = weights["lm_head.weight"] + 1
    with pytest.raises(UsageError, match=r"ties .* but the new weights differ"):
        asyncio.run(backend.update_weights(weights, 3))
    assert backend.weight_version == 2


def test_dropout_is_off(tiny_model, make_backend):
    model = tiny_model("gpt2").train()
    backend = make_backend(model)
    assert generate(backend, ask()) == generate(backend, ask())


def test_two_loops_share_a_backend(tiny_model, make_backend, reference, same):
    model = tiny_model()
    backend = make_backend(model)
    results = {}

    def loop(number):
        async def everything():
            return await asyncio.gather(*(backend.generate(ask([number, i], seed=i)) for i in range(5)))

        results[number] = asyncio.run(everything())

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, generations in results.items():
        for i, got in enumerate(generations):
            same(got, reference(model, ask([number, i], seed=i)))


def test_a_loop_that_closes_early_disturbs_nobody(tiny_model, make_backend):
    backend = make_backend(tiny_model())
    loop = asyncio.new_event_loop()
    call = loop.create_task(backend.generate(ask(**LONG)))
    loop.run_until_complete(started(backend))
    call.cancel()
    loop.run_until_complete(asyncio.gather(call, return_exceptions=True))
    loop.close()
    assert len(generate(backend, ask()).token_ids) == 8


def test_closing_fails_what_is_unfinished_and_ends_the_thread(tiny_model, make_backend):
    backend = make_backend(tiny_model(), max_batch=1)
    held = Held(backend)

    async def scenario():
        calls = [
            asyncio.create_task(backend.generate(ask(**LONG))),
            asyncio.create_task(backend.generate(ask())),
            asyncio.create_task(backend.generate_wave([ask(), ask()])),
            asyncio.create_task(backend.update_weights({}, 1)),
        ]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(backend.close())
        await asyncio.sleep(0.01)
        held.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        await closing
        return results

    results = asyncio.run(scenario())
    assert all(isinstance(r, AgentFlyError) and "closed" in str(r) for r in results)
    assert not backend._worker._thread.is_alive()
    with pytest.raises(UsageError, match="closed"):
        generate(backend, ask())
    asyncio.run(backend.close())


def test_closing_in_the_middle_of_a_wave(tiny_model, make_backend):
    backend = make_backend(tiny_model(), max_batch=1)

    async def scenario():
        wave = asyncio.create_task(backend.generate_wave([ask(**LONG), ask(**LONG)]))
        await started(backend)
        await backend.close()
        return await asyncio.gather(wave, return_exceptions=True)

    (result,) = asyncio.run(scenario())
    assert isinstance(result, AgentFlyError)


def test_a_forgotten_backend_ends_its_thread(tiny_model):
    from agentfly_core.backends.hf import HFBackend

    backend = HFBackend(tiny_model())
    thread = backend._worker._thread
    del backend
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_the_interpreter_exits_with_requests_running():
    program = """
import asyncio, transformers as t
from agentfly_core.backends.hf import HFBackend
from agentfly_core.types import GenerationRequest, SamplingParams
model = t.Qwen2ForCausalLM(t.Qwen2Config(vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=100000))
backend = HFBackend(model)
async def main():
    call = asyncio.create_task(backend.generate(GenerationRequest([1], SamplingParams(max_tokens=90000))))
    while not backend._batch.live():
        await asyncio.sleep(0.001)
    call._log_destroy_pending = False
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print("leaving")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "leaving\n"), done.stderr
