"""``@configurable``: a tool that a recipe may give options."""

from __future__ import annotations

from collections.abc import Callable

from agentfly_core.tools.base import CallableTool


def configurable(factory: Callable[..., CallableTool]) -> CallableTool:
    """Make a factory of tools into the tool it makes by default; a recipe's options make another one of it.

    Every parameter of the factory is an option and needs a default; one annotated ``Path`` is relative to the recipe.
    The factory is called when its module is imported, so it must not do any work::

        @configurable
        def lookup(*, table: Path | None = None) -> CallableTool:
            @tool
            def lookup(word: str) -> str:
                "Look a word up."
                ...

            return lookup
    """
    made = factory()
    made.configured = factory
    return made
