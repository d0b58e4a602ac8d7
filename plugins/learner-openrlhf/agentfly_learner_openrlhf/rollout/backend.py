"""The generation backend over the vLLM engine of a rollout actor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentfly_core.types import FinishReason, Generation, GenerationRequest, SamplingParams, UsageError
from agentfly_learner_openrlhf.rollout.weights import WeightClock

if TYPE_CHECKING:
    from torch import Tensor

FINISH: Mapping[str | None, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


class RolloutBackend:
    """Implements ``types.GenerationBackend``: ids in, ids and the engine's own logprobs out.

    Args:
        engine: OpenRLHF's rollout actor.
        loop: the actor's event loop, on which every ``generate`` runs.
        weights: tells which weights are sampled with.
    """

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop, weights: WeightClock) -> None:
        self.loop = loop
        self._engine = engine
        self._weights = weights

    @property
    def weight_version(self) -> int:
        """Training steps that the weights have seen."""
        return self._weights.version

    @property
    def max_model_len(self) -> int | None:
        """Longest prompt plus generation, in tokens."""
        length: int | None = self._engine.kwargs["max_model_len"]
        return length

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one turn.

        Raises:
            UsageError: prompt and max_tokens exceed ``max_model_len``, or the request carries images or forbids ids.
        """
        limit, length = self.max_model_len, len(request.prompt_ids) + request.sampling.max_tokens
        if limit is not None and length > limit:
            raise UsageError(f"{length} tokens of prompt and generation exceed the limit of {limit}")
        if request.images:
            raise UsageError("the learner 'openrlhf' sends no images to its engines yet")
        if request.sampling.forbidden_token_ids:
            raise UsageError(
                "the learner 'openrlhf' cannot forbid ids: OpenRLHF's engines would give logprobs of the distribution "
                "without them, not of the whole one"
            )
        version = self.weight_version
        found = await self._engine.generate(list(request.prompt_ids), self._params(request.sampling))
        [output] = found.outputs
        ids = tuple(output.token_ids)
        logprobs = tuple(entry[id].logprob for id, entry in zip(ids, output.logprobs, strict=True))
        return Generation(ids, logprobs, FINISH[output.finish_reason], version, self.weight_version)

    async def update_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Never called: OpenRLHF brings the weights.

        Raises:
            UsageError: always.
        """
        raise UsageError("OpenRLHF gives its engines their weights itself")

    async def close(self) -> None:
        """The engine belongs to OpenRLHF."""

    def _params(self, sampling: SamplingParams) -> Any:
        """vLLM's parameters. Its engine has a seed of its own: a seed a request would slow its sampler down.

        OpenRLHF starts it with ``logprobs_mode="processed_logprobs"``: of the distribution after temperature, as they
        should be, and in an evaluation after top-p and top-k.
        """
        from vllm import SamplingParams as EngineParams
        from vllm.sampling_params import RequestOutputKind

        return EngineParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop_token_ids=list(sampling.stop_token_ids),
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            ignore_eos=True,  # the template says what ends a turn, not the model's configuration
            logprobs=0,  # of the sampled id alone
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
