"""A task: what a chain is asked to do, and the data-set fields its reward needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentfly_core.types.messages import Message

Split: TypeAlias = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class Task:
    """One row of a data set, or one task of an environment.

    Attributes:
        id: unique in its data set; keys all randomness of its chains.
        messages: opening messages; may be empty where an environment gives the first observation.
        fields: every other column of the row. Rewards name the ones they want in their signature.
    """

    id: str
    messages: tuple[Message, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


def derive_seed(seed: int, *key: str | int) -> int:
    """A 63-bit seed for the stream named by ``key``: equal keys give equal seeds on every machine."""
    text = json.dumps([seed, *key], ensure_ascii=True).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
