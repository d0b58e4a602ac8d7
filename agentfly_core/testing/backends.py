"""Whether a generation backend keeps its contract (``types.GenerationBackend``)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentfly_core.backends.stopping import Decoder
from agentfly_core.testing.report import Report, show
from agentfly_core.types import (
    Generation,
    GenerationBackend,
    GenerationRequest,
    SamplingParams,
    UsageError,
    WaveBackend,
)

if TYPE_CHECKING:
    from torch import Tensor

PROMPTS = ((1, 2, 3), (4, 5), (3, 1, 2, 4, 5, 2))
LOGPROB_TOLERANCE = 1e-3
"""Between a request alone and in a batch; in bfloat16 a tie may be broken otherwise, in float32 it is far less."""


def check_backend(
    backend: GenerationBackend,
    *,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    max_tokens: int = 8,
    weights: Mapping[str, Tensor] | None = None,
    tokenizer: Decoder | None = None,
    timeout: float = 60.0,
) -> None:
    """Check what a backend samples and what it makes of limits, cancellation and new weights. It is left open.

    Args:
        prompts: token ids that the model knows.
        max_tokens: of a turn.
        weights: what ``update_weights`` may be given (the model's own state dict changes nothing); None leaves
            that out.
        tokenizer: the model's, a ``tokenizers.Tokenizer``, to check stop texts with; None leaves them out.
        timeout: seconds that one request may take.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report(f"backend {type(backend).__name__}")
    members = ("weight_version", "max_model_len", "generate", "update_weights", "close")
    lacking = [member for member in members if not hasattr(backend, member)]
    fix = "implement agentfly_core.types.GenerationBackend"
    if report.expect(not lacking, f"it lacks {', '.join(lacking)}", where="the backend", fix=fix):
        check = _Check(report, backend, [list(prompt) for prompt in prompts], max_tokens, tokenizer, timeout)
        report.run(lambda: check.all(weights), seconds=timeout * (len(prompts) + 8))
    report.finish()


class _Check:
    def __init__(
        self,
        report: Report,
        backend: GenerationBackend,
        prompts: list[list[int]],
        max_tokens: int,
        tokenizer: Decoder | None,
        timeout: float,
    ) -> None:
        self.report, self.backend, self.tokenizer, self.timeout = report, backend, tokenizer, timeout
        sampling = SamplingParams(max_tokens=max_tokens)
        self.requests = [
            GenerationRequest(prompt, replace(sampling, seed=seed), chain_key=("check", seed, 0))
            for seed, prompt in enumerate(prompts)
        ]

    async def all(self, weights: Mapping[str, Tensor] | None) -> None:
        limit, version = self.backend.max_model_len, self.backend.weight_version
        good = limit is None or (type(limit) is int and limit > 0)
        fix = "give the longest prompt plus generation in tokens, or None"
        self.report.expect(good, f"it is {show(limit)}", where="max_model_len", fix=fix)
        good = type(version) is int
        self.report.expect(good, f"it is {show(version)}", where="weight_version", fix="give an int")
        alone = [await self._generate(request, "generate") for request in self.requests]
        if None in alone:
            return
        await self._together(alone)
        await self._stop_token(self.requests[0], alone[0])
        if self.tokenizer is not None:
            await self._stop_text(self.requests[0], alone[0])
        await self._forbidden(self.requests[0])
        await self._too_long(self.requests[0])
        await self._cancelled(self.requests[0], alone[0])
        if isinstance(self.backend, WaveBackend):
            fix = "sample each request of a wave as generate would"
            wave = await self._do(lambda: self.backend.generate_wave(self.requests), "generate_wave", fix)
            self._same(alone, wave or [], "generate_wave", fix)
        if weights is not None:
            await self._update(weights)

    async def _generate(self, request: GenerationRequest, where: str) -> Any:
        fix = "sample a turn for any prompt of known ids within max_model_len"
        version = self.backend.weight_version
        generation = await self._do(lambda: self.backend.generate(request), where, fix)
        if generation is None:
            return None
        if not isinstance(generation, Generation):
            self.report.add(f"it returned {show(generation)}", where=where, fix="return a types.Generation")
            return None
        self._check(generation, request.sampling, where)
        good = generation.weight_version == generation.last_weight_version == version
        what = f"versions {generation.weight_version} and {generation.last_weight_version} of weights {version}"
        self.report.expect(good, what, where=where, fix="note the versions that sampled the first and the last id")
        return generation

    def _check(self, generation: Generation, sampling: SamplingParams, where: str) -> None:
        ids, stops = generation.token_ids, sampling.stop_token_ids
        good = 0 < len(ids) <= sampling.max_tokens and all(type(i) is int for i in ids)
        what = f"{len(ids)} ids for max_tokens {sampling.max_tokens}"
        self.report.expect(good, what, where=where, fix="sample 1 to max_tokens ids, as plain ints")
        good = all(math.isfinite(p) and p <= LOGPROB_TOLERANCE for p in generation.logprobs)
        what = f"logprobs {show(generation.logprobs)}"
        self.report.expect(good, what, where=where, fix="give natural logs of probabilities, at most 0")
        early = [i for i in ids[:-1] if i in stops]
        fix = "end at the first stop token, and keep it"
        self.report.expect(not early, f"sampling went on after stop token {early[:1]}", where=where, fix=fix)
        stopped = bool(ids) and (ids[-1] in stops or self._spells(ids, sampling.stop))
        expected = ("stop",) if stopped else ("length",)
        good = generation.finish_reason in expected and (stopped or len(ids) == sampling.max_tokens)
        what = f"finish reason {generation.finish_reason!r} after {len(ids)} ids, the last {ids[-1:]}"
        fix = "say `stop` exactly if the last id is a stop token or completes a stop text, and `length` at max_tokens"
        self.report.expect(good, what, where=where, fix=fix)

    async def _together(self, alone: list[Any]) -> None:
        where, fix = "requests at once", "key the randomness by the request's seed, never by its place in a batch"
        together = await asyncio.gather(*(self._generate(request, where) for request in self.requests))
        self._same(alone, together, where, fix)

    def _same(self, first: Sequence[Any], again: Sequence[Any], where: str, fix: str) -> None:
        for a, b in zip(first, again, strict=False):
            good = b is not None and a.token_ids == b.token_ids
            what = "the same seed and prompt gave other ids than alone"
            if self.report.expect(good, what, where=where, fix=fix):
                gap = max((abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)), default=0.0)
                what = "logprobs differ from those of the request alone"
                fix_logprobs = "score each row by itself: padding and neighbours must not show"
                self.report.expect(gap <= LOGPROB_TOLERANCE, what, where=where, fix=fix_logprobs)
        good = len(first) == len(again)
        self.report.expect(good, f"{len(again)} results for {len(first)} requests", where=where, fix=fix)

    async def _stop_token(self, request: GenerationRequest, sampled: Generation) -> None:
        """An id that the same seed sampled before, made a stop token, ends the turn there."""
        stop = sampled.token_ids[len(sampled.token_ids) // 2]
        end = sampled.token_ids.index(stop) + 1
        stopping = replace(request, sampling=replace(request.sampling, stop_token_ids=(stop,)))
        where, fix = f"generate with stop token {stop}", "end at the first stop token, and keep it"
        generation = await self._generate(stopping, where)
        good = generation is None or generation.token_ids == sampled.token_ids[:end]
        self.report.expect(good, f"it gave {show(generation)}", where=where, fix=fix)

    async def _stop_text(self, request: GenerationRequest, sampled: Generation) -> None:
        """A character that the same seed sampled before, made a stop text, ends the turn with the id it is in."""
        ids = sampled.token_ids
        stop = self._text(ids[: (len(ids) + 1) // 2])[-1:]
        if not stop or stop == "\ufffd":
            return
        end = next(i for i in range(1, len(ids) + 1) if stop in self._text(ids[:i]))
        stopping = replace(request, sampling=replace(request.sampling, stop=(stop,)))
        where, fix = f"generate with stop text {stop!r}", "end with the id that completes a stop text, and keep it"
        generation = await self._generate(stopping, where)
        good = generation is None or (generation.token_ids, generation.finish_reason) == (ids[:end], "stop")
        self.report.expect(good, f"it gave {show(generation)}", where=where, fix=fix)

    async def _forbidden(self, request: GenerationRequest) -> None:
        """The likeliest ids again, one of them forbidden: the same up to it, with the same logprobs."""
        greedy = replace(request, sampling=replace(request.sampling, temperature=0.0))
        free = await self._generate(greedy, "generate at temperature 0")
        if free is None:
            return
        forbidden = free.token_ids[-1]
        before = free.token_ids.index(forbidden)
        asked = replace(greedy, sampling=replace(greedy.sampling, forbidden_token_ids=(forbidden,)))
        where = f"generate with forbidden id {forbidden}"
        bound = await self._generate(asked, where)
        if bound is None:
            return
        fix = "give forbidden ids a logit of -inf before sampling"
        good = forbidden not in bound.token_ids and bound.token_ids[:before] == free.token_ids[:before]
        self.report.expect(good, f"it gave {show(bound)} where {show(free)} is likeliest", where=where, fix=fix)
        pairs = zip(bound.logprobs[:before], free.logprobs[:before], strict=False)
        good = all(abs(a - b) <= LOGPROB_TOLERANCE for a, b in pairs)
        fix = "report logprobs of the whole distribution, as without forbidden ids"
        self.report.expect(good, "logprobs differ from those without it", where=where, fix=fix)

    def _spells(self, ids: Sequence[int], texts: Sequence[str]) -> bool:
        return bool(texts) and any(text in self._text(ids) for text in texts)

    def _text(self, ids: Sequence[int]) -> str:
        assert self.tokenizer is not None
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    async def _too_long(self, request: GenerationRequest) -> None:
        limit = self.backend.max_model_len
        if limit is None:
            return
        asking = replace(request, sampling=replace(request.sampling, max_tokens=limit))
        where, fix = "a request beyond max_model_len", "raise UsageError: a turn that is cut silently trains on less"
        try:
            await asyncio.wait_for(self.backend.generate(asking), self.timeout)
            self.report.add("it is served", where=where, fix=fix)
        except UsageError:
            return
        except Exception as error:
            self.report.add(f"it raised {type(error).__name__}", where=where, fix=fix)

    async def _cancelled(self, request: GenerationRequest, alone: Generation) -> None:
        where, fix = "a cancelled request", "let asyncio.CancelledError pass, and free the request's place"
        task = asyncio.ensure_future(self.backend.generate(request))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=self.timeout)
        if self.report.expect(task.done(), "it does not end", where=where, fix=fix):
            good = task.cancelled() or task.exception() is None
            self.report.expect(good, "it raised another error", where=where, fix=fix)
        again = await self._generate(request, "the request after a cancelled one")
        self._same([alone], [again], "the request after a cancelled one", fix)

    async def _update(self, weights: Mapping[str, Tensor]) -> None:
        version = self.backend.weight_version + 1
        fix = "take the weights over, then count the version up to the given one"
        await self._do(lambda: self.backend.update_weights(weights, version), "update_weights", fix)
        found = self.backend.weight_version
        self.report.expect(found == version, f"the version is {found}, not {version}", where="update_weights", fix=fix)
        await self._generate(self.requests[0], "generate after update_weights")

    async def _do(self, call: Any, where: str, fix: str) -> Any:
        return await self.report.attempt(call, where=where, fix=fix, seconds=self.timeout)
