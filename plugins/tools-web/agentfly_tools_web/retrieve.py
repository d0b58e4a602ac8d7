"""The tool ``retrieve``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agentfly_core.tools import CallableTool, configurable, tool
from agentfly_core.types import UsageError
from agentfly_tools_web.retrieval import Passage, open_index

MAX_K = 20


@configurable(needs=("index",))
def retrieve(*, index: Path | None = None, k: int = 3, max_chars: int = 2000) -> CallableTool:
    """Options: the index folder, how many passages by default, and how much of each is shown."""
    if not 1 <= k <= MAX_K or max_chars < 1:
        raise UsageError(f"tool 'retrieve': k must be from 1 to {MAX_K} and max_chars at least 1")
    opened = None if index is None else open_index(index)

    @tool(max_output_chars=MAX_K * (max_chars + 200))
    def retrieve(query: str, k: Annotated[int, Field(ge=1, le=MAX_K)] = k) -> str:
        """Search a collection of texts for passages about something.

        Args:
            query: What to look for: words or a question.
            k: How many passages to return.
        """
        if opened is None:
            raise UsageError("the tool 'retrieve' needs the option 'index'")
        return show_passages(opened.search(query, k), max_chars=max_chars)

    return retrieve


def show_passages(passages: Sequence[Passage], *, max_chars: int) -> str:
    """Numbered passages for a model, each cut at ``max_chars`` characters."""
    if not passages:
        return "Nothing was found. Try other words."
    return "\n\n".join(f"[{n}] {p.title}\n{shorten(p.text, max_chars)}" for n, p in enumerate(passages, 1))


def shorten(text: str, max_chars: int) -> str:
    """``text``, or its beginning up to a space and dots."""
    if len(text) <= max_chars:
        return text
    head = text[:max_chars].rsplit(None, 1)[0] if " " in text[:max_chars] else text[:max_chars]
    return f"{head} ..."
