"""The ``hf`` backend: a transformers model in this process, with continuous batching."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.backends.limits import check_length
from agentfly_core.backends.loading import load_model
from agentfly_core.backends.stopping import Decoder, StopTexts, load_decoder
from agentfly_core.types import Generation, GenerationRequest, MissingDependency, UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from agentfly_core.backends.slots import Row

CPU_CACHE_GIB = 4.0
GPU_CACHE_SHARE = 0.6
"""Part of the memory left free by the weights that the cache may take."""


class HFBackend:
    """Samples from a transformers causal LM. Implements ``GenerationBackend`` and ``WaveBackend``.

    Requests may come from any thread's event loop; one thread runs the model. A request joins the running batch at the
    next decode step and leaves it when it is done. Requests with equal prompts that join together share the prompt's
    pass. What is cached of a chain (``chain_key``) is kept for its next turn as long as there is room, so that only
    the tokens after it are fed; the ids are compared, so this never changes what is sampled from.

    The architecture must keep its state in keys and values (full or sliding-window attention); it is tried out on a
    few tokens at the start, and refused if its cached logits differ from those of a plain forward pass.

    Args:
        model: a folder or hub id, loaded by ``load_model``; or a module, used as it is (not copied; put into eval
            mode; ``device``, ``dtype`` and ``attention`` are then the module's own). Only beside a folder or hub id
            there is a tokenizer, which is loaded with the first request that has a ``stop``.
        device: torch device, or ``auto``.
        dtype: ``float32``, ``bfloat16``, ``float16``. Logprobs are computed in float32.
        attention: ``sdpa`` or ``eager``.
        max_batch: rows sampled at once. As many finished chains again are kept for their next turn.
        max_model_len: limit of prompt plus generation; None takes the model's.
        threads: CPU threads of torch for this backend's thread; None leaves torch's own.
        cache_gib: memory bound of keys and values. None: 4 GiB on a CPU, 60% of what the weights leave free on a GPU.

    Raises:
        MissingDependency: torch, transformers or numpy is not installed.
        UsageError: the model cannot be loaded or run, or an option is wrong.
    """

    def __init__(
        self,
        model: str | Path | nn.Module,
        *,
        device: str = "auto",
        dtype: str = "float32",
        attention: str = "sdpa",
        max_batch: int = 256,
        max_model_len: int | None = None,
        threads: int | None = None,
        cache_gib: float | None = None,
    ) -> None:
        if max_batch < 1 or (threads is not None and threads < 1):
            raise UsageError(f"max_batch and threads must be at least 1, got {max_batch} and {threads}")
        loaded: Any = model
        if isinstance(model, (str, Path)):
            loaded = load_model(model, dtype=dtype, device=device, attention=attention)
        try:
            from agentfly_core.backends.batch import Batch
            from agentfly_core.backends.runner import ModelRunner
            from agentfly_core.backends.slots import Slots
            from agentfly_core.backends.worker import Worker
        except ImportError as error:
            raise MissingDependency(error.name or "torch", "the hf backend", "agentfly-core[local]") from error

        self.model: nn.Module = loaded.eval()
        self._source = model
        self._loading = threading.Lock()
        self._decoder: Decoder | None = None
        self._stops: dict[tuple[str, ...], StopTexts] = {}
        runner = ModelRunner(loaded)
        self._vocabulary = runner.vocabulary
        self._max_model_len = _limit(max_model_len, runner.max_positions)
        cache = runner.new_cache()
        runner.verify(cache)
        tokens = int(_cache_bytes(cache_gib, runner.device) // cache.token_bytes)
        slots = Slots(cache, most_rows=2 * max_batch, most_tokens=tokens)
        self._batch = Batch(runner, slots)
        self._worker = Worker(loaded, self._batch, slots, max_batch, threads)
        self._stop = weakref.finalize(self, self._worker.stop)  # also at exit, while torch still works

    @property
    def weight_version(self) -> int:
        """Version of the weights that the next token is sampled with; 0 until the first update."""
        return self._batch.version

    @property
    def max_model_len(self) -> int | None:
        """Longest prompt plus ``max_tokens``. A longer request is refused, never clamped."""
        return self._max_model_len

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one turn. Cancelling the call frees its row at the next step.

        Raises:
            UsageError: the request is empty, too long, has images, ids outside the vocabulary or a ``stop`` without a
                tokenizer; or the backend is closed.
            AgentFlyError: the model failed on the batch that the request was in (out of memory, logits not finite),
                or the backend was closed meanwhile.
        """
        row = self._row(request, await self._stop_texts(request))
        self._worker.submit(row)
        return (await _outcomes([row]))[0]

    async def generate_wave(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Sample all in one batch, in this order, which nothing else joins; more than ``max_batch``, or than the cache
        holds, run as consecutive batches in order.

        A wave in which no chain goes on from a kept turn starts from an empty cache. From there on a sequence of waves
        gives the same bits whenever it is repeated with the same weights (and the same number of threads).

        Raises:
            As ``generate``; the first failure of the wave.
        """
        from agentfly_core.backends.worker import Wave

        rows = [self._row(request, await self._stop_texts(request)) for request in requests]
        if not rows:
            return []
        self._worker.submit(Wave(rows))
        return await _outcomes(rows)

    async def update_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy new weights in, once the requests that came before have been sampled to their end with the old ones;
        requests that come after wait. So every generation is of one version. What was cached is dropped.

        Leave the tensors as they are until this returns; afterwards they are yours again.

        Raises:
            UsageError: names or shapes are not those of the model's state dict (of tied weights one name is enough);
                nothing has changed then.
        """
        from agentfly_core.backends.worker import Update

        update = Update(weights, version, asyncio.get_running_loop().create_future())
        self._worker.submit(update)
        try:
            await update.future
        except asyncio.CancelledError:
            update.abandoned = True
            raise

    async def close(self) -> None:
        """End the thread and free the cache; unfinished requests fail. May be called again."""
        try:
            await asyncio.to_thread(self._stop)
        except RuntimeError:  # at the interpreter's exit no thread can be had
            self._stop()

    async def _stop_texts(self, request: GenerationRequest) -> StopTexts | None:
        """What finds the request's stop texts. Reading the tokenizer must not hold up the caller's loop."""
        texts = tuple(request.sampling.stop)
        if not texts:
            return None
        if self._decoder is None:
            await asyncio.to_thread(self._load_decoder)
        assert self._decoder is not None
        return self._stops.setdefault(texts, StopTexts(self._decoder, texts))

    def _load_decoder(self) -> None:
        with self._loading:
            self._decoder = self._decoder or load_decoder(self._source)

    def _row(self, request: GenerationRequest, stops: StopTexts | None) -> Row:
        from agentfly_core.backends.sampling import UniformStream
        from agentfly_core.backends.slots import Row

        check_length(request, self._max_model_len)
        if request.images:
            raise UsageError("the hf backend samples from text models; this request has images")
        forbidden = request.sampling.forbidden_token_ids
        for what, ids in (("prompt", request.prompt_ids), ("forbidden", forbidden)):
            low, high = min(ids, default=0), max(ids, default=0)
            if low < 0 or high >= self._vocabulary:
                wrong = low if low < 0 else high
                raise UsageError(
                    f"{what} id {wrong} is outside the model's vocabulary of {self._vocabulary}; "
                    "tokenizer and model differ"
                )
        if len(forbidden) >= self._vocabulary == len(set(forbidden)):
            raise UsageError("forbidden_token_ids forbids every id of the model's vocabulary; leave some")
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        return Row(request, future, UniformStream(request.sampling.seed), stops)


async def _outcomes(rows: list[Row]) -> list[Generation]:
    """Wait for all; if one fails or the caller is cancelled, none of them is wanted any more."""
    try:
        return list(await asyncio.gather(*(row.future for row in rows)))
    except BaseException:
        for row in rows:
            row.abandoned = True
        raise


def _limit(asked: int | None, possible: int | None) -> int | None:
    if asked is not None and possible is not None and asked > possible:
        raise UsageError(f"max_model_len {asked} exceeds what the model can hold, {possible} tokens")
    return possible if asked is None else asked


def _cache_bytes(gib: float | None, device: torch.device) -> float:
    import torch

    if gib is not None:
        if gib <= 0:
            raise UsageError(f"cache_gib must be positive, got {gib}")
        return gib * 2**30
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * GPU_CACHE_SHARE
    return CPU_CACHE_GIB * 2**30
