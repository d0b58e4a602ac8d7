"""Which rows go through the model together, and a prompt that several of them share only once.

The chains of a group begin with the same prompt. A pack is one sequence with that prompt and behind it what follows
in each of its rows; positions go on from the prompt for every row, and a token sees its own row and the prompt::

    tokens     P P P a a a b b        rows  P P P a a a   and   P P P b b
    positions  0 1 2 3 4 5 3 4
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentfly_core.learners.collate import Collated

LONGEST_PACK = 384
"""Tokens of a pack of several rows: attention grows with the square, which soon costs more than a repeated prompt."""

WORTHWHILE = 8
"""Tokens of a shared prompt from which on packing pays."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows in one sequence; their first ``shared`` tokens are equal and stand in it once."""

    rows: tuple[int, ...]
    shared: int = 0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of a batch for one forward pass; each is in one of the packs, which count from the micro-batch's rows."""

    rows: list[int]
    packs: list[Pack]


@dataclass(frozen=True, slots=True)
class Block:
    """Packs of batch rows that must stay together, and the tokens of the longest."""

    packs: list[Pack]
    width: int


def plan(data: Collated, chains: Sequence[Sequence[int]], budget: int, *, share: bool) -> list[MicroBatch]:
    """Micro-batches of at most ``budget`` tokens with all rows of a chain in one of them; see ``micro_batches``.

    Args:
        chains: rows of each chain.
        share: pack the chains of a group.
    """
    lengths: list[int] = data.lengths.tolist()
    groups: dict[int, list[int]] = defaultdict(list)
    blocks: list[Block] = []
    for unit in chains:
        if share and len(unit) == 1:
            groups[int(data.batch.group[data.batch.chain[unit[0]]])].append(unit[0])
        elif unit:
            blocks.append(Block([Pack((row,)) for row in unit], max(lengths[row] for row in unit)))
    for rows in groups.values():
        blocks += _packed(data, rows, lengths, min(budget, LONGEST_PACK))
    return micro_batches(blocks, budget)


def _packed(data: Collated, rows: list[int], lengths: list[int], limit: int) -> list[Block]:
    """The rows of a group in as few packs as the limit allows."""
    shared = _common_prefix(data, rows)
    if len(rows) < 2 or shared < WORTHWHILE:
        return [Block([Pack((row,))], lengths[row]) for row in rows]
    blocks: list[Block] = []
    for row in rows:
        last = blocks[-1] if blocks else None
        width = last.width + lengths[row] - shared if last else 0
        if last is None or width > limit:
            blocks.append(Block([Pack((row,), shared)], lengths[row]))
        else:
            blocks[-1] = Block([replace(last.packs[0], rows=(*last.packs[0].rows, row))], width)
    return blocks


def _common_prefix(data: Collated, rows: list[int]) -> int:
    """Number of tokens that all rows begin with, none of them sampled."""
    sampled = torch.nn.functional.pad(data.batch.mask[rows].any(dim=0), (1, 0))
    equal = (data.token_ids[rows] == data.token_ids[rows[0]]).all(dim=0) & ~sampled
    return int(equal.long().cumprod(dim=0).sum())


def micro_batches(blocks: Sequence[Block], budget: int) -> list[MicroBatch]:
    """Blocks in micro-batches of at most ``budget`` tokens, padding included.

    A block that exceeds it alone is a micro-batch of its own. Those of like length go together: little is padded.
    """
    filled: list[MicroBatch] = []
    width = 0
    for block in sorted(blocks, key=lambda b: b.width, reverse=True):
        if not filled or (len(filled[-1].packs) + len(block.packs)) * width > budget:
            filled.append(MicroBatch([], []))
            width = block.width
        into = filled[-1]
        for pack in block.packs:
            start = len(into.rows)
            into.rows.extend(pack.rows)
            into.packs.append(replace(pack, rows=tuple(range(start, len(into.rows)))))
    return filled


@dataclass(frozen=True, slots=True)
class Layout:
    """Packs as the model gets them.

    Attributes:
        token_ids, positions: (P, S).
        allowed: (P, 1, S, S) bool, which key a query may see; None where plain causal attention is meant.
        packs, columns: (K,) where the hidden state of each of the K masked tokens' predecessor stands.
    """

    token_ids: Tensor
    positions: Tensor
    allowed: Tensor | None
    packs: Tensor
    columns: Tensor


def lay_out(token_ids: Tensor, mask: Tensor, packs: Sequence[Pack]) -> Layout:
    """Packs over rows ``token_ids`` (R, T) with ``mask`` (R, T-1). A row ends before its last masked token."""
    rows, columns = mask.nonzero(as_tuple=True)
    needed = torch.where(mask, torch.arange(1, mask.shape[1] + 1), 0).amax(dim=1).tolist()
    spans = [[(row, pack.shared, max(needed[row], pack.shared)) for row in pack.rows] for pack in packs]
    sizes = [pack.shared + sum(end - start for _, start, end in span) for pack, span in zip(packs, spans, strict=True)]
    shape = (len(packs), max(sizes, default=0))
    ids, positions = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    owner = torch.full(shape, -1)
    pack_of, shared_of, offset_of = (torch.zeros(token_ids.shape[0], dtype=torch.int64) for _ in range(3))
    for number, (pack, span) in enumerate(zip(packs, spans, strict=True)):
        at = pack.shared
        ids[number, :at], positions[number, :at] = token_ids[pack.rows[0], :at], torch.arange(at)
        owner[number, :at] = token_ids.shape[0]
        for row, start, end in span:
            there = slice(at, at + end - start)
            ids[number, there], positions[number, there] = token_ids[row, start:end], torch.arange(start, end)
            owner[number, there] = row
            pack_of[row], shared_of[row], offset_of[row] = number, start, at
            at += end - start
    shared = shared_of[rows]
    places = torch.where(columns < shared, columns, columns - shared + offset_of[rows])
    allowed = None
    if any(len(pack.rows) > 1 for pack in packs):
        prompt = owner == token_ids.shape[0]
        allowed = ((owner.unsqueeze(2) == owner.unsqueeze(1)) | prompt.unsqueeze(1)).tril().unsqueeze(1)
    return Layout(ids, positions, allowed, pack_of[rows], places)
