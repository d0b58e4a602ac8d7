from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from agentfly_core.testing import ConformanceError


@contextlib.contextmanager
def _found(*texts: str) -> Iterator[Any]:
    """The block raises a ``ConformanceError`` whose violations hold these texts, each with a place and a remedy."""
    with pytest.raises(ConformanceError) as caught:
        yield caught
    for text in texts:
        assert any(text in v.what for v in caught.value.violations), f"{text!r} is not in: {caught.value}"
    assert all(v.where and v.fix and v.where in str(caught.value) for v in caught.value.violations)


@pytest.fixture
def found():
    return _found
