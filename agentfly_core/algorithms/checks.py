"""Checks of an algorithm's options: each says which option is wrong and what it may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agentfly_core.types import UsageError


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of ``choices``."""
    if value not in choices:
        raise UsageError(f"algorithm option {name} must be one of {', '.join(choices)}; got {value!r}")


def check_number(name: str, value: Any, *, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse what is not a finite number in [low, high]."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (good and low <= value <= high):
        raise UsageError(f"algorithm option {name} must be a number in [{low}, {high}]; got {value!r}")
