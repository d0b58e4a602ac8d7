"""The key-value cache: one row a chain, token p of a chain in slot p of its row, rows written at their own places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

LENGTH_STEP = 64
"""Rows are given a length that is a multiple of this."""


class SlotCache(Cache):
    """A transformers cache over preallocated rows, so that nothing is concatenated, padded or shifted.

    The keys of a layer are one tensor (rows, heads, length, dim). A forward pass writes its tokens to the slots that
    ``aim`` was given and sees the slots of its rows as keys; which of them a query may look at is the mask's business.
    Memory is zeroed when allocated, because a masked slot still enters attention with weight 0.

    Args:
        shapes: for each layer (heads, dim) of its keys and of its values.
    """

    def __init__(
        self, shapes: Sequence[tuple[tuple[int, int], tuple[int, int]]], dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(layers=[])
        self._dtype, self._device = dtype, device
        self._members: dict[tuple[int, int], int] = {}
        self._places: list[tuple[tuple[tuple[int, int], int], ...]] = []
        for layer in shapes:
            self._places.append(tuple((shape, self._take(shape)) for shape in layer))
        self.rows = 0
        self.length = 0
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self.clear()

    def _take(self, shape: tuple[int, int]) -> int:
        self._members[shape] = self._members.get(shape, 0) + 1
        return self._members[shape] - 1

    @property
    def token_bytes(self) -> int:
        """Memory of one slot of one row over all layers."""
        return sum(n * heads * dim for (heads, dim), n in self._members.items()) * self._dtype.itemsize

    def clear(self) -> None:
        """Forget everything and free the memory."""
        self.rows = self.length = 0
        self._buffers = {shape: self._zeros(shape, 0, 0) for shape in self._members}

    def _zeros(self, shape: tuple[int, int], rows: int, length: int) -> Tensor:
        size = (self._members[shape], rows, shape[0], length, shape[1])
        return torch.zeros(size, dtype=self._dtype, device=self._device)

    def resize(self, rows: int, length: int) -> None:
        """Change the size; what lies in the first rows and slots is kept."""
        if (rows, length) == (self.rows, self.length):
            return
        kept, slots = min(rows, self.rows), min(length, self.length)
        for shape, old in self._buffers.items():
            new = self._zeros(shape, rows, length)
            new[:, :kept, :, :slots] = old[:, :kept, :, :slots]
            self._buffers[shape] = new
        self.rows, self.length = rows, length

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Copy the first ``length`` slots of rows; all are read before any is written."""
        read, write = (torch.tensor(list(x), device=self._device) for x in (source, target))
        for buffer in self._buffers.values():
            for layer in buffer:  # one by one: fresh memory for a copy of all layers would cost more than the copy
                window = layer[:, :, :length]
                window.index_copy_(0, write, window.index_select(0, read))

    def erase(self, row: int) -> None:
        """Zero a row that holds numbers that are not finite."""
        for buffer in self._buffers.values():
            buffer[:, row] = 0

    def aim(self, rows: Sequence[int], slots: Tensor, *, visible: int | None) -> None:
        """Where the next forward pass writes, and what it sees.

        Args:
            rows: B rows.
            slots: (B, T) slot of each token.
            visible: the pass sees slots 0 to ``visible`` of its rows; None: only its own tokens, in their order.
        """
        self._rows = rows
        self._visible = visible
        self._row_index = torch.tensor(list(rows), device=self._device)
        self._slots = slots
        self._flat: dict[int, Tensor] = {}

    def _flat_index(self, heads: int) -> Tensor:
        """Place of (row, head, slot) in a buffer seen as (rows * heads * length, dim)."""
        if heads not in self._flat:
            head = torch.arange(heads, device=self._device)
            start = (self._row_index[:, None] * heads + head) * self.length
            self._flat[heads] = (start[:, :, None] + self._slots[:, None, :]).reshape(-1)
        return self._flat[heads]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's keys and values (B, heads, T, dim) and return all that the pass sees."""
        seen = [
            self._exchange(self._buffers[shape][index], states)
            for (shape, index), states in zip(self._places[layer_idx], (key_states, value_states), strict=True)
        ]
        return seen[0], seen[1]

    def _exchange(self, buffer: Tensor, states: Tensor) -> Tensor:
        rows, heads, length, dim = buffer.shape
        flat = buffer.view(rows * heads * length, dim)
        flat.index_copy_(0, self._flat_index(heads), states.reshape(-1, dim).to(buffer.dtype))
        if self._visible is None:
            return states
        if isinstance(self._rows, range):
            return buffer[self._rows.start : self._rows.stop, :, : self._visible]
        return buffer[:, :, : self._visible].index_select(0, self._row_index)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: every pass is given its positions and its mask."""
        return 0
