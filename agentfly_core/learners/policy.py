"""A model as a policy: logprobs of given tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agentfly_core.learners.collate import Collated, micro_batches


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and how it is asked.

    Attributes:
        model: of transformers, weights in float32. Always in eval mode: with dropout the ratio of new to old policy
            would be noise.
        temperature: logits are divided by it, as they were when the tokens were sampled.
        dtype: of the forward pass; other than float32 it runs under autocast.
    """

    model: nn.Module
    temperature: float = 1.0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def frozen(self) -> Policy:
        """Itself, never to be trained: a reference."""
        self.model.requires_grad_(False)
        return self

    def weights(self) -> dict[str, Tensor]:
        """The state dict, without graph; the tensors are the model's own."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def logprobs(self, token_ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Logprobs and entropies of the masked tokens.

        Only masked positions go through the projection onto the vocabulary. Rows are padded at the right and
        attention is causal, so that no attention mask is needed.

        Args:
            token_ids: (R, T).
            mask: (R, T-1) bool; column t stands for token t+1.

        Returns:
            log pi (R, T-1) with graph, entropy (R, T-1) without; both 0 off the mask.
        """
        token_ids, mask = token_ids.to(self.device), mask.to(self.device)
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        with _only_at(self.model, mask), autocast:
            logits = self.model(input_ids=token_ids[:, :-1], use_cache=False).logits[0]
        logits = logits.float() / self.temperature
        normaliser = logits.logsumexp(dim=-1)
        taken = logits.gather(-1, token_ids[:, 1:][mask].unsqueeze(-1)).squeeze(-1) - normaliser
        with torch.no_grad():
            entropy = normaliser - ((logits - normaliser.unsqueeze(-1)).exp() * logits).sum(dim=-1)
        zeros = taken.new_zeros(mask.shape)
        return zeros.masked_scatter(mask, taken), zeros.masked_scatter(mask, entropy)

    @torch.no_grad()
    def infer(self, data: Collated, rows: Sequence[Sequence[int]], budget: int) -> tuple[Tensor, Tensor]:
        """``logprobs`` of whole chains without graph, in micro-batches, on the CPU; 0 on all other rows, (B, T-1)."""
        logp, entropy = torch.zeros(data.batch.mask.shape), torch.zeros(data.batch.mask.shape)
        for part in micro_batches(rows, data.lengths, budget):
            width = int(data.lengths[part].max())
            found = self.logprobs(data.token_ids[part, :width], data.batch.mask[part, : width - 1])
            logp[part, : width - 1], entropy[part, : width - 1] = (x.cpu() for x in found)
        return logp, entropy


@contextmanager
def _only_at(model: Any, mask: Tensor) -> Iterator[None]:
    """Hand the output projection the hidden states at ``mask`` only: (R, S, H) -> (1, K, H).

    A hook rather than a call of the parts: what an architecture does to its logits afterwards stays in place.
    """

    def select(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][mask].unsqueeze(0), *inputs[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
