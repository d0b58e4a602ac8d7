"""The prompt that chains of a group share is encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.rollout.contents import images_of
from agentfly_core.types import Message, ToolSchema


@dataclass(slots=True)
class LastPrompt:
    """The last prompt that was encoded. Chains of a group begin one after another, so that one is enough."""

    messages: Sequence[Message] = ()
    schemas: Sequence[ToolSchema] = ()
    ids: Sequence[int] = ()

    def find(self, messages: Sequence[Message], schemas: Sequence[ToolSchema]) -> list[int] | None:
        """Its ids, if these are its messages and this is its list of tools."""
        same = self.ids and schemas is self.schemas and not images_of(messages) and list(messages) == self.messages
        return list(self.ids) if same else None

    def keep(self, messages: Sequence[Message], schemas: Sequence[ToolSchema], ids: Sequence[int]) -> None:
        """Remember this one instead. Messages with images are not compared, and so not kept."""
        if not images_of(messages):
            self.messages, self.schemas, self.ids = list(messages), schemas, tuple(ids)
