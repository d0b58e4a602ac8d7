"""A model small enough to train in a minute on a CPU, the task it is warmed up for, and a small text world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentfly_core.hookspecs import Register, hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_environments(register: Register[Any]) -> None:
    register("agentfly_models_tiny.rooms:Rooms", name="rooms", summary="Find the treasure: rooms, boxes, keys, locks.")


def model_folder() -> Path:
    """The folder with the warm-started model: weights, config, tokenizer and chat template."""
    return Path(__file__).parent / "model"
