"""One forward pass of a transformers model over ragged rows of the slot cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from agentfly_core.backends.cache import SlotCache
from agentfly_core.types import UsageError

ATTENTION = ("sdpa", "eager")
"""Implementations that take a mask of any shape."""


class ModelRunner:
    """Feeds tokens to a model so that token p of a chain lies in slot p of its row.

    Rows of different lengths are fed together. A pass takes M columns; a row with m < M new tokens has them in the
    last m columns (so that its logits are in the last one), and fills the columns before with slots *behind* its
    tokens. Those are garbage that no real token may look at and that the row's next tokens overwrite, so no slot is
    ever padding, and the mask is simply "slots up to my own".

    Raises:
        UsageError: the architecture cannot be run like this.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.config = model.config.get_text_config()
        weight: Tensor = model.get_input_embeddings().weight
        self.vocabulary, self.device = weight.shape[0], weight.device
        self.dtype: torch.dtype = model.dtype
        self._floor = torch.finfo(self.dtype).min
        parameters = inspect.signature(self.model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._refuse_unless("position_ids" in parameters, "its forward pass takes no position_ids")
        implementation = self.config._attn_implementation
        self._refuse_unless(
            implementation in ATTENTION, f"attention {implementation!r} takes no mask; use one of {ATTENTION}"
        )
        self._windows = self._layer_windows()
        self.max_positions = _max_positions(self.config)

    def _refuse_unless(self, fine: bool, reason: str) -> None:
        if not fine:
            raise UsageError(f"the hf backend cannot run {type(self.model).__name__}: {reason}")

    def _layer_windows(self) -> dict[str, int | None]:
        """Attention window of each layer type (None: full), in the names that the model calls its masks by."""
        layers = DynamicCache(config=self.config).layers
        types = getattr(self.config, "layer_types", None) or [
            "sliding_attention" if isinstance(layer, DynamicSlidingWindowLayer) else "full_attention"
            for layer in layers
        ]
        known = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
        local = "local" in getattr(self.config, "attention_layers", ())
        self._refuse_unless(
            known and not local and set(types) <= {"full_attention", "sliding_attention"},
            f"it has layers other than full and sliding-window attention ({', '.join(sorted(set(types)))})",
        )
        windows = {(name, getattr(layer, "sliding_window", None)) for name, layer in zip(types, layers, strict=True)}
        self._refuse_unless(len(windows) == len(set(types)), "its sliding windows differ in size")
        return dict(windows)

    def new_cache(self) -> SlotCache:
        """An empty cache that fits the model; takes one pass over one token to see what the model stores."""
        seen: Any = DynamicCache(config=self.config)
        with torch.no_grad():
            ids = torch.zeros((1, 1), dtype=torch.int64, device=self.device)
            self.model(input_ids=ids, use_cache=True, **{self._cache_name: seen})
        self._refuse_unless(all(layer.is_initialized for layer in seen.layers), "some layers store no keys")
        shapes = [
            ((layer.keys.shape[1], layer.keys.shape[3]), (layer.values.shape[1], layer.values.shape[3]))
            for layer in seen.layers
        ]
        return SlotCache(shapes, seen.layers[0].keys.dtype, self.device)

    def feed(self, cache: SlotCache, rows: Sequence[int], ids: Sequence[Sequence[int]], bases: Sequence[int]) -> Tensor:
        """Feed each row its new tokens, which follow ``bases[i]`` tokens that the cache holds already.

        Returns:
            (B, V) float logits after each row's last token.
        """
        columns = max(map(len, ids))
        counts = np.fromiter(map(len, ids), np.int64, len(ids))
        tokens = np.zeros((len(ids), columns), np.int64)
        for row, new in enumerate(ids):
            tokens[row, columns - len(new) :] = new
        turn = (np.arange(columns) - (columns - counts)[:, None]) % columns
        slots = np.asarray(bases, np.int64)[:, None] + turn
        return self.forward(cache, rows, tokens, slots, visible=int(slots.max()) + 1 if any(bases) else None)

    def forward(
        self,
        cache: SlotCache,
        rows: Sequence[int],
        tokens: NDArray[np.int64],
        slots: NDArray[np.int64],
        *,
        visible: int | None,
    ) -> Tensor:
        """Run tokens (B, T) at slots (B, T); see ``SlotCache.aim``. Returns the logits of the last column, (B, V)."""
        slot = torch.from_numpy(slots).to(self.device)
        cache.aim(rows, slot, visible=visible)
        keys = slot[:, None, :] if visible is None else torch.arange(visible, device=self.device)
        masks = {name: self._mask(keys, slot[:, :, None], window) for name, window in self._windows.items()}
        position = slot if self.max_positions is None else slot.clamp(max=self.max_positions - 1)
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.from_numpy(tokens).to(self.device),
                position_ids=position,
                attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
                use_cache=True,
                **{self._cache_name: cache},
                **self._last_only,
            )
        logits: Tensor = output.logits[:, -1]
        return logits

    def _mask(self, keys: Tensor, queries: Tensor, window: int | None) -> Tensor:
        """Additive mask (B, 1, T, keys): 0 where a token may look, the smallest number elsewhere."""
        allowed = keys <= queries
        if window is not None:
            allowed &= keys > queries - window
        mask = torch.zeros(allowed.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~allowed, self._floor)[:, None]

    def verify(self, cache: SlotCache) -> None:
        """Compare the cached path with plain forward passes on a few tokens, so that an architecture that keeps other
        state than keys and values, or ignores the mask, is refused instead of sampled from wrongly.

        Raises:
            UsageError: they differ.
        """
        try:
            expected, got = self._plain_and_cached(cache)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            raise UsageError(
                f"the hf backend cannot run {type(self.model).__name__}: a trial pass failed "
                f"({type(error).__name__}: {error})"
            ) from error
        finally:
            cache.clear()
        tolerance = (1e-3 if self.dtype == torch.float32 else 0.1) * float(expected.abs().max())
        difference = float((expected - got).abs().max())
        self._refuse_unless(
            difference <= tolerance, f"with its keys and values cached it gives other logits (by {difference:.2g})"
        )

    def _plain_and_cached(self, cache: SlotCache) -> tuple[Tensor, Tensor]:
        texts = [[(7 * i + 3 * n) % self.vocabulary for i in range(n)] for n in (4, 9)]
        with torch.inference_mode():
            plain = [
                self.model(input_ids=torch.tensor([text], device=self.device), use_cache=False).logits[0, -1]
                for text in texts
            ]
        cache.resize(2, 16)
        self.feed(cache, [1, 0], [text[:-3] for text in texts], [0, 0])
        self.feed(cache, [1, 0], [text[-3:-1] for text in texts], [len(text) - 3 for text in texts])
        got = self.feed(
            cache, range(2), [text[-1:] for text in reversed(texts)], [len(text) - 1 for text in reversed(texts)]
        )
        return torch.stack(plain).float(), got.flip(0).float()


def _max_positions(config: Any) -> int | None:
    """Longest sequence in tokens. Where the rotary frequencies change with the longest sequence of the batch (dynamic
    and long RoPE), the length up to which they do not, so that a row never depends on another."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        limit = rope.get("original_max_position_embeddings") or limit
    return limit
