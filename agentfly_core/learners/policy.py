"""A model as a policy: logprobs of given tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from agentfly_core.learners.collate import Collated
from agentfly_core.learners.packing import MicroBatch, Pack, lay_out, plan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and how it is asked.

    Attributes:
        model: of transformers, weights in float32. Always in eval mode: with dropout the ratio of new to old policy
            would be noise.
        temperature: logits are divided by it, as they were when the tokens were sampled.
        dtype: of the forward pass; other than float32 it runs under autocast.
        share_prompts: the chains of a group go through the model with one copy of their prompt.
    """

    model: nn.Module
    temperature: float = 1.0
    dtype: torch.dtype = torch.float32
    share_prompts: bool = False

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

    def plan(self, data: Collated, chains: Sequence[Sequence[int]], budget: int) -> list[MicroBatch]:
        """See ``packing.plan``."""
        return plan(data, chains, budget, share=self.share_prompts)

    def logprobs(self, token_ids: Tensor, mask: Tensor, packs: Sequence[Pack] | None = None) -> tuple[Tensor, Tensor]:
        """Logprobs and entropies of the masked tokens.

        Only masked positions go through the projection onto the vocabulary. Rows are padded at the right and
        attention is causal, so that without packs no attention mask is needed.

        Args:
            token_ids: (R, T), on the CPU.
            mask: (R, T-1) bool, on the CPU; column t stands for token t+1.
            packs: which rows share their prompt; None: each stands alone.

        Returns:
            log pi (R, T-1) with graph, entropy (R, T-1) without, on the policy's device; both 0 off the mask.
        """
        device = self.device
        layout = lay_out(token_ids, mask, packs or [Pack((row,)) for row in range(token_ids.shape[0])])
        autocast = torch.autocast(device.type, self.dtype, enabled=self.dtype != torch.float32)
        with _only_at(self.model, layout.packs.to(device), layout.columns.to(device)), autocast:
            logits = self.model(
                input_ids=layout.token_ids.to(device),
                position_ids=layout.positions.to(device),
                attention_mask=_attention_mask(self.model, layout.allowed),
                use_cache=False,
            ).logits[0]
        logits = logits.float() / self.temperature
        normaliser = logits.logsumexp(dim=-1)
        taken = logits.gather(-1, token_ids[:, 1:][mask].to(device).unsqueeze(-1)).squeeze(-1) - normaliser
        with torch.no_grad():
            entropy = normaliser - ((logits - normaliser.unsqueeze(-1)).exp() * logits).sum(dim=-1)
        mask = mask.to(device)
        zeros = taken.new_zeros(mask.shape)
        return zeros.masked_scatter(mask, taken), zeros.masked_scatter(mask, entropy)

    @torch.no_grad()
    def infer(self, data: Collated, chains: Sequence[Sequence[int]], budget: int) -> tuple[Tensor, Tensor]:
        """``logprobs`` of whole chains without graph, in micro-batches, on the CPU; 0 on all other rows, (B, T-1)."""
        logp, entropy = torch.zeros(data.batch.mask.shape), torch.zeros(data.batch.mask.shape)
        for part in self.plan(data, chains, budget):
            width = int(data.lengths[part.rows].max())
            mask = data.batch.mask[part.rows, : width - 1]
            found = self.logprobs(data.token_ids[part.rows, :width], mask, part.packs)
            logp[part.rows, : width - 1], entropy[part.rows, : width - 1] = (x.cpu() for x in found)
        return logp, entropy

    @torch.no_grad()
    def sharing_prompts(self) -> Policy:
        """Itself with ``share_prompts`` if the model's attention can do it.

        Windows and recurrent layers count what lies between two tokens, which packs change. Some attention kernels
        take no mask: that is tried out.
        """
        model: Any = self.model
        if not _sees_everything(model.config):
            return self
        ids = torch.arange(2 * 24).remainder(model.get_input_embeddings().num_embeddings).reshape(2, 24)
        ids[1, :12] = ids[0, :12]
        mask = (torch.arange(23) >= 12).expand(2, 23)
        try:
            shared, _ = self.logprobs(ids, mask, [Pack((0, 1), 12)])
        except (RuntimeError, TypeError, ValueError) as error:
            logger.info("the model cannot share prompts between chains (%s); training is slower", error)
            return self
        alone, _ = self.logprobs(ids, mask)
        tolerance = 1e-4 if self.dtype == torch.float32 else 0.1
        return replace(self, share_prompts=bool((shared - alone).abs().max() < tolerance))


def _attention_mask(model: Any, allowed: Tensor | None) -> Tensor | None:
    """The mask as the model's attention takes it: bool, but to be added to the scores with ``eager``."""
    if allowed is None:
        return None
    allowed = allowed.to(model.device)
    if model.config._attn_implementation != "eager":
        return allowed
    return torch.where(allowed, 0.0, torch.finfo(torch.float32).min)


def _sees_everything(config: Any) -> bool:
    """Whether every layer attends to all tokens before, as far as the config says."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return all(kind == "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is None or not getattr(config, "use_sliding_window", True)


@contextmanager
def _only_at(model: Any, rows: Tensor, columns: Tensor) -> Iterator[None]:
    """Hand the output projection the hidden states at these places only: (P, S, H) -> (1, K, H).

    A hook rather than a call of the parts: what an architecture does to its logits afterwards stays in place.
    """

    def select(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][rows, columns].unsqueeze(0), *inputs[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
