"""What a checkpoint holds: a Hugging Face model folder, and beside it what training needs to go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from agentfly_core.backends.loading import without_progress_bar
from agentfly_core.learners.optim import ScheduledOptimizer
from agentfly_core.types import UsageError

TRAINER = "trainer"
"""Subfolder with the state of the trainer."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)


def write_model(model: Any, folder: Path, *, tokenizer_from: str | Path) -> None:
    """Write weights (safetensors), config and tokenizer: what every tool of the Hugging Face world loads.

    Args:
        tokenizer_from: the base model, a folder or a hub id; a folder's tokenizer files are copied byte for byte.
    """
    with without_progress_bar():
        model.save_pretrained(folder)
    source = Path(tokenizer_from).expanduser()
    if not source.is_dir():
        import transformers

        transformers.AutoTokenizer.from_pretrained(str(tokenizer_from)).save_pretrained(folder)
        return
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def write_trainer(folder: Path, step: int, optimizer: ScheduledOptimizer) -> None:
    """Write step, optimizer and the state of torch's random numbers into ``folder/trainer``."""
    inside = folder / TRAINER
    inside.mkdir()
    torch.save({"optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, inside / "state.pt")
    (inside / "state.json").write_text(json.dumps({"step": step}), encoding="utf-8")


def read_trainer(folder: Path, optimizer: ScheduledOptimizer) -> int:
    """Take up the state written by ``write_trainer``; returns its step.

    Raises:
        UsageError: it is not there, or belongs to another model or optimizer.
    """
    inside = folder / TRAINER
    try:
        step = int(json.loads((inside / "state.json").read_text(encoding="utf-8"))["step"])
        state = torch.load(inside / "state.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"the checkpoint {folder} cannot be resumed ({type(error).__name__}: {error}); delete it to go on from the "
            "one before, or start a new run with model.path set to it"
        ) from error
    return step
