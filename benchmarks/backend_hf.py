"""Tokens per CPU-second of HFBackend beside transformers' own ``generate``, on a tiny model with one thread.

    python benchmarks/backend_hf.py

Both sample 24 prompts x 8 chains, twice: the second turn continues the first with 12 tokens of an observation. A turn
ends at one of 24 stop ids (after 25 tokens on average) or at 60 tokens. ``generate`` gets left-padded batches and
prefills the second turn anew, as it has no notion of a chain. The runs of both are interleaved; the median of 5 is
printed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentfly_core.backends.hf import HFBackend
from agentfly_core.types import GenerationRequest, SamplingParams

VOCABULARY, NEW, OBSERVATION = 700, 60, 12
STOP = tuple(range(5, 700, 29))


def tiny_model() -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    model.train(False)
    return model


def make_prompts(prompts: int, chains: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    lengths = [52 + i % 16 for i in range(prompts)]
    texts = [torch.randint(1, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]
    return [text for text in texts for _ in range(chains)]


def observation(chain: int) -> list[int]:
    return [(31 * chain + 7 * i) % VOCABULARY for i in range(OBSERVATION)]


def up_to_stop(ids: list[int]) -> list[int]:
    return ids[: next((i + 1 for i, token in enumerate(ids) if token in STOP), len(ids))]


def run_backend(backend: HFBackend, prompts: list[list[int]]) -> int:
    async def chain(number: int) -> int:
        ids, sampled = prompts[number], 0
        for turn in range(2):
            sampling = SamplingParams(max_tokens=NEW, stop_token_ids=STOP, seed=2 * number + turn)
            got = await backend.generate(GenerationRequest(ids, sampling, chain_key=("bench", number, 0)))
            ids = [*ids, *got.token_ids, *observation(number)]
            sampled += len(got.token_ids)
        return sampled

    async def everything() -> int:
        return sum(await asyncio.gather(*(chain(i) for i in range(len(prompts)))))

    return asyncio.run(everything())


@torch.no_grad()
def run_generate(model: Qwen2ForCausalLM, prompts: list[list[int]]) -> int:
    texts, sampled = prompts, 0
    for _ in range(2):
        longest = max(map(len, texts))
        ids = torch.tensor([[0] * (longest - len(text)) + text for text in texts])
        mask = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in texts])
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=NEW,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            pad_token_id=0,
            eos_token_id=list(STOP),
        )
        new = [up_to_stop(row) for row in out[:, longest:].tolist()]
        sampled += sum(map(len, new))
        texts = [[*text, *got, *observation(i)] for i, (text, got) in enumerate(zip(texts, new, strict=True))]
    return sampled


def measure(work: Callable[[], int]) -> tuple[float, float]:
    """Tokens per CPU-second, and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = work()
    return tokens / (time.process_time() - cpu), time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    prompts = make_prompts(options.prompts, options.chains)
    backend = HFBackend(tiny_model(), threads=options.threads)
    model = tiny_model()
    contenders: dict[str, Callable[[], int]] = {
        "HFBackend": lambda: run_backend(backend, prompts),
        "transformers generate": lambda: run_generate(model, prompts),
    }
    for work in contenders.values():
        work()
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(options.repeat):
        for name, work in contenders.items():
            results[name].append(measure(work))
    print(f"{options.prompts} prompts x {options.chains} chains, 2 turns, {options.threads} thread(s)")
    print(f"{'':24}{'tokens / CPU-s':>16}{'wall s':>10}")
    for name, runs in results.items():
        rate, wall = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name:24}{rate:16,.0f}{wall:10.2f}")
    asyncio.run(backend.close())


if __name__ == "__main__":
    main()
