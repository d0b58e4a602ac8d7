"""Turns that end at a text: what vLLM makes of the ids that its engine samples. On vLLM's own code, without a model."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from agentfly_learner_openrlhf.rollout.backend import RolloutBackend
from agentfly_learner_openrlhf.rollout.weights import WeightClock

from agentfly_core.types import Generation, GenerationRequest, SamplingParams

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from agentfly_models_tiny import model_folder
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder())


class ScriptedActor:
    """OpenRLHF's rollout actor with vLLM's output processor, and ids as they would come out of its engine."""

    def __init__(self, tokenizer: Any, ids: list[int], end: int | None) -> None:
        self.kwargs = {"max_model_len": None}
        self._tokenizer = tokenizer
        self._ids = ids
        self._end = end

    async def generate(self, prompt_ids: list[int], params: Any) -> Any:
        import numpy
        from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.outputs import LogprobsLists

        processor = OutputProcessor(self._tokenizer, log_stats=False)
        request = EngineCoreRequest(
            request_id="r",
            prompt_token_ids=prompt_ids,
            mm_features=None,
            sampling_params=copy.deepcopy(params),
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id="r",
        )
        processor.add_request(request, None)
        for number, id in enumerate(self._ids):
            sampled = LogprobsLists(
                numpy.array([[id]]), numpy.array([[-0.25 * number]], dtype=numpy.float32), numpy.array([1])
            )
            reason = FinishReason.STOP if id == self._end else None
            if number + 1 == params.max_tokens:
                reason = FinishReason.LENGTH
            done = processor.process_outputs([EngineCoreOutput("r", [id], sampled, finish_reason=reason)])
            if done.request_outputs:
                return done.request_outputs[0]
        raise AssertionError("the ids ended before the turn did")


def generate(tokenizer: Any, ids: list[int], sampling: SamplingParams, end: int | None = None) -> Generation:
    async def play() -> Generation:
        actor = ScriptedActor(tokenizer, ids, end)
        backend = RolloutBackend(actor, asyncio.get_running_loop(), WeightClock(0))
        return await backend.generate(GenerationRequest(tuple(tokenizer.encode("stop")), sampling))

    return asyncio.run(play())


def test_a_stop_text_ends_the_turn_with_all_its_ids(tokenizer: Any) -> None:
    ids = tokenizer.encode("1 + 2 is\nObservation: and what comes after")
    for stop in ("\nObservation", "serv", ":", "never", "Observation: "):
        found = generate(tokenizer, ids, SamplingParams(max_tokens=len(ids), stop=("nowhere", stop)))
        ends = [n for n in range(1, len(ids) + 1) if stop in tokenizer.decode(ids[:n])]
        kept = ends[0] if ends else len(ids)
        assert found.token_ids == tuple(ids[:kept])
        assert found.logprobs == tuple(-0.25 * n for n in range(kept))
        assert found.finish_reason == ("stop" if ends else "length")


def test_a_control_token_is_spelled_out_where_a_text_is_looked_for(tokenizer: Any) -> None:
    control = tokenizer.eos_token_id
    ids = [*tokenizer.encode("so"), control, *tokenizer.encode(" and on")]
    stop = tokenizer.convert_ids_to_tokens(control)
    before = ids.index(control)
    found = generate(tokenizer, ids, SamplingParams(max_tokens=len(ids), stop=(stop,)))
    assert (found.token_ids, found.finish_reason) == (tuple(ids[: before + 1]), "stop")
    unheeded = generate(tokenizer, ids, SamplingParams(max_tokens=len(ids)))
    assert (unheeded.token_ids, unheeded.finish_reason) == (tuple(ids), "length")


def test_an_id_that_ends_the_turn_is_kept(tokenizer: Any) -> None:
    ids = [*tokenizer.encode("so"), tokenizer.eos_token_id]
    for stop in ((), ("nowhere",)):
        sampling = SamplingParams(max_tokens=99, stop_token_ids=(tokenizer.eos_token_id,), stop=stop)
        found = generate(tokenizer, ids, sampling, end=tokenizer.eos_token_id)
        assert (found.token_ids, found.finish_reason) == (tuple(ids), "stop")
        assert found.logprobs == tuple(-0.25 * n for n in range(len(ids)))
