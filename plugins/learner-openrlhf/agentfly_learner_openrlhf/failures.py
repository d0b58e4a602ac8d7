"""What went wrong on a cluster, in one line."""

from __future__ import annotations

import re
from typing import ClassVar

from agentfly_core.types import AgentFlyError, UsageError


class ClusterError(AgentFlyError):
    """The run ended because of the cluster or of something that runs on it, not of the recipe."""

    exit_code: ClassVar[int] = 3


def explain(error: BaseException, *, logs: str) -> AgentFlyError:
    """The error to end with. A ``UsageError`` raised on a worker stays one.

    Args:
        logs: where Ray's are.
    """
    cause = root_cause(error)
    if isinstance(cause, UsageError):
        return UsageError(str(cause))
    text = f"{type(cause).__name__}: {first_words(str(cause))}"
    return ClusterError(f"the run failed on the cluster: {text} (logs: {logs})")


def root_cause(error: BaseException) -> BaseException:
    """The error in which a chain of failed Ray calls began."""
    seen = {id(error)}
    while (cause := getattr(error, "cause", None) or error.__cause__) is not None and id(cause) not in seen:
        if not isinstance(cause, BaseException):
            break
        seen.add(id(cause))
        error = cause
    return error


def first_words(text: str, limit: int = 600) -> str:
    """A message in one line, without colours and not too long. Of a traceback only the end says what happened."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
