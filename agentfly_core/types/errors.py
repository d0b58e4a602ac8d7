"""The errors AgentFly raises on purpose. Everything else that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class AgentFlyError(Exception):
    """Base of every error raised on purpose. The message says what, where and how to mend it."""

    exit_code: ClassVar[int] = 2
    """With which the command line ends. A kind of failure that scripts tell from wrong input has one of its own."""


class UsageError(AgentFlyError):
    """The user's input (recipe, data, command line, plugin name) is wrong; the command line exits with 2."""


class UnknownName(UsageError):
    """A name that no registration, option or key answers to."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        known = sorted(known)
        self.name = name
        self.nearest = nearest(name, known)
        text = f"unknown {what} {name!r}"
        if self.nearest:
            text += f"; did you mean {' or '.join(repr(n) for n in self.nearest)}?"
        elif known:
            text += f"; known: {', '.join(known)}"
        super().__init__(f"{text}{' ' + hint if hint else ''}")


class MissingDependency(UsageError):
    """An optional package is not installed."""

    def __init__(self, package: str, needed_for: str, install: str) -> None:
        super().__init__(f"{needed_for} needs the package {package!r}. Install it with: pip install '{install}'")


class InvalidArguments(AgentFlyError):
    """A model's tool arguments do not fit the tool's schema; the text is written for the model."""


class ResourceError(AgentFlyError):
    """A resource could not be started, reached or kept."""


class LeaseLost(ResourceError):
    """A lease ran past its time limit, or its instance died, while it was held."""


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The known names that a mistyped ``name`` most likely meant, best first."""
    return difflib.get_close_matches(name, list(known), n=limit, cutoff=0.6)
