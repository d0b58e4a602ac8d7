"""Conversations of an imperfect player of ``rooms``, from which a model learns the world's language."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from agentfly_core.types import Message, derive_seed
from agentfly_models_tiny.rooms import Rooms


def room_demonstrations(
    seed: int = 0, *, wander: float = 0.3, rooms: int = 3, locks: int = 1, max_steps: int = 20
) -> Iterator[dict[str, Any]]:
    """Endless rows with ``messages``: raw text actions and observations.

    Args:
        wander: chance that an action is not the best one but any that makes sense now.
        rooms, locks, max_steps: of the world, see ``Rooms``.
    """
    world = Rooms(rooms=rooms, locks=locks, max_steps=max_steps)
    rng = random.Random(derive_seed(seed, "room demonstrations"))
    for task in Rooms.tasks("train", derive_seed(seed, "demonstrated rooms")):
        yield {"messages": play(world, world.begin(task, 0), rng, wander)}


def play(world: Rooms, opening: str, rng: random.Random, wander: float) -> list[Message]:
    """One episode from its opening observation to its end."""
    messages: list[Message] = [{"role": "user", "content": opening}]
    while True:
        action = rng.choice(world.admissible_actions()) if rng.random() < wander else world.plan()[0]
        result = world.act(action)
        messages.append({"role": "assistant", "content": action})
        if result.done:
            return messages
        messages.append({"role": "user", "content": str(result.observation)})
