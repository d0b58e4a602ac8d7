from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
def make_backend():
    """Builds backends and closes them afterwards."""
    from agentfly_core.backends.hf import HFBackend

    made = []

    def make(model, **options):
        made.append(HFBackend(model, **options))
        return made[-1]

    yield make
    for backend in made:
        asyncio.run(backend.close())


@pytest.fixture
def tiny_model():
    """Builds small models whose weights are large enough for every token to matter."""
    import torch
    import transformers as t

    common = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    gpt2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.25}
    builders = {
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**common)),
        "qwen2-tied": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**common, tie_word_embeddings=True)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**common)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**common, sliding_window=6)),
        "gemma2": lambda: t.Gemma2ForCausalLM(
            t.Gemma2Config(**common, head_dim=8, sliding_window=6, attn_implementation="eager")
        ),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(**gpt2, bos_token_id=None, eos_token_id=None, attn_pdrop=0.1, resid_pdrop=0.1)
        ),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=4)),
        "mamba": lambda: t.MambaForCausalLM(t.MambaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2)),
        "gpt-neo": lambda: t.GPTNeoForCausalLM(
            t.GPTNeoConfig(
                vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
            )
        ),
    }

    def build(name="qwen2", seed=0):
        torch.manual_seed(seed)
        return builders[name]()

    return build


@pytest.fixture
def reference():
    """Samples a request from full forward passes over the whole text, one token and one request at a time."""
    import numpy as np
    import torch

    from agentfly_core.types import Generation

    def keep_likely(probs, top_k, top_p):
        order = sorted(range(len(probs)), key=lambda i: -probs[i])[: top_k or len(probs)]
        total, kept, mass = sum(probs[i] for i in order), [], 0.0
        for i in order:
            if kept and mass >= top_p * total:
                break
            kept.append(i)
            mass += probs[i]
        return kept

    @torch.no_grad()
    def sample(model, request, version=0):
        params, ids, logprobs = request.sampling, list(request.prompt_ids), []
        uniforms = np.random.Generator(np.random.Philox(key=params.seed)).random(256, dtype=np.float32)
        reason = "length"
        for step in range(params.max_tokens):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double()
            logp = torch.log_softmax(logits / (params.temperature or 1.0), -1).numpy()
            if params.temperature == 0:
                token = int(logp.argmax())
            else:
                probs = np.exp(logp)
                filtered = params.top_k > 0 or params.top_p < 1
                among = keep_likely(probs, params.top_k, params.top_p) if filtered else list(range(len(probs)))
                mass = np.cumsum(probs[among])
                token = among[int(np.searchsorted(mass, uniforms[step] * mass[-1], side="right"))]
            ids.append(token)
            logprobs.append(float(logp[token]))
            if token in params.stop_token_ids:
                reason = "stop"
                break
        return Generation(tuple(ids[len(request.prompt_ids) :]), tuple(logprobs), reason, version, version)

    return sample


@pytest.fixture
def same():
    """Asserts that two generations agree, logprobs within 1e-5."""

    def check(got, want):
        assert got.token_ids == want.token_ids
        assert got.logprobs == pytest.approx(want.logprobs, abs=1e-5)
        assert got.finish_reason == want.finish_reason

    return check
