"""Between learner and engine: chains one way, weights the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from torch import Tensor

from agentfly_core.types import GenerationBackend, RolloutEngine, Task, Trajectory


def sample_groups(engine: RolloutEngine, tasks: Sequence[Task], chains: int, *, label: str) -> list[Trajectory]:
    """``chains`` chains of every task, in the order of tasks and chains whatever the order they ended in.

    Two tasks with one id form two groups: their chains have seeds of their own and share no baseline.
    """
    rounds: list[dict[str, Task]] = []
    for task in tasks:
        free = next((r for r in rounds if task.id not in r), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[task.id] = task
    done: list[Trajectory] = []
    for number, round_ in enumerate(rounds):
        place = {id_: i for i, id_ in enumerate(round_)}
        found = engine.run(round_.values(), chains=chains, label=f"{label}.{number}" if number else label)
        done += sorted(found, key=lambda t: (place[t.task.id], t.chain_index))
    return done


def hand_over(backend: GenerationBackend, weights: Mapping[str, Tensor], version: int) -> None:
    """Give the backend new weights and wait until it samples with them."""
    wait_for(backend, backend.update_weights(weights, version))


def close_backend(backend: GenerationBackend) -> None:
    """Close it and wait."""
    wait_for(backend, backend.close())


def wait_for(backend: GenerationBackend, call: Coroutine[Any, Any, None]) -> None:
    """Run a backend's coroutine on the loop it lives on, or on one of our own if it names none."""
    loop: asyncio.AbstractEventLoop | None = getattr(backend, "loop", None)
    if loop is None:
        asyncio.run(call)
    else:
        asyncio.run_coroutine_threadsafe(call, loop).result()
