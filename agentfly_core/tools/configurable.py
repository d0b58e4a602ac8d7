"""``@configurable``: a tool that a recipe may give options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from agentfly_core.tools.base import CallableTool


@overload
def configurable(factory: Callable[..., CallableTool], /) -> CallableTool: ...
@overload
def configurable(*, needs: tuple[str, ...] = ()) -> Callable[[Callable[..., CallableTool]], CallableTool]: ...
def configurable(factory: Callable[..., CallableTool] | None = None, /, *, needs: tuple[str, ...] = ()) -> Any:
    """Make a factory of tools into the tool it makes by default; a recipe's options make another one of it.

    Every parameter of the factory is an option and has a default; one annotated ``Path`` is relative to the recipe.
    The factory is called when its module is imported, and must then do no work::

        @configurable(needs=("table",))
        def lookup(*, table: Path | None = None) -> CallableTool:
            @tool
            def lookup(word: str) -> str:
                "Look a word up."
                ...

            return lookup

    Args:
        needs: options without which the tool is of no use; a recipe that does not give them is refused.
    """

    def make(factory: Callable[..., CallableTool]) -> CallableTool:
        made = factory()
        made.configured = factory
        made.needs = needs
        return made

    return make if factory is None else make(factory)
