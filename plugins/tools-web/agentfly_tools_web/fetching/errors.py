"""Why something could not be fetched, in words for the model."""

from __future__ import annotations

from agentfly_core.types import AgentFlyError


class FetchError(AgentFlyError):
    """The text says what happened; ``transient`` whether trying again later may help.

    Attributes:
        wait: seconds that the server asked to wait, or None.
    """

    def __init__(self, text: str, *, transient: bool = False, wait: float | None = None) -> None:
        super().__init__(text)
        self.transient = transient
        self.wait = wait


class TooLarge(FetchError):
    """The answer has more bytes than are read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is larger than {limit:,} bytes")
