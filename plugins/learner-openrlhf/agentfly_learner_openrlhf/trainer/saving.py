"""Checkpoints and models as the run folder has them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from agentfly_core.learners.checkpointing import TOKENIZER_FILES, TRAINER
from agentfly_core.runs.checkpoints import Checkpoints
from agentfly_core.runs.files import TEMPORARY
from agentfly_learner_openrlhf.job import current_job, current_recipe

TAG, HF = "global_step", "_hf"
"""OpenRLHF names the checkpoint of step 10 ``global_step10``, its Hugging Face model ``global_step10_hf``."""


def replace_in(module: ModuleType) -> None:
    """Put ours around the methods of OpenRLHF's strategy."""
    strategy = module.DeepspeedStrategy
    strategy.setup_dataloader = _in_order(strategy.setup_dataloader)
    strategy.save_ckpt = _checkpoint(strategy.save_ckpt)
    strategy.save_model = _model(strategy.save_model)


def _in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """The data file is in the order of the recipe already."""

    def setup_dataloader(self: Any, data: Any, batch_size: int, pin_memory: bool = False, *rest: Any, **options: Any):
        return original(self, data, batch_size, False, False, *rest[1:], **options)

    return setup_dataloader


def _checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    """DeepSpeed's state of a step goes into a folder that becomes the checkpoint when all of it is there."""

    def save_ckpt(self: Any, model: Any, save_dir: str, tag: str, *rest: Any, **options: Any) -> Any:
        folder = unfinished(step_of(tag)) / TRAINER / Path(save_dir).name
        return original(self, model, str(folder), tag, *rest, **options)

    return save_ckpt


def _model(original: Callable[..., Any]) -> Callable[..., Any]:
    """A Hugging Face folder with the base model's tokenizer files, byte for byte."""

    def save_model(self: Any, model: Any, tokenizer: Any, output_dir: str, **options: Any) -> Any:
        name = Path(output_dir).name
        if name.endswith(HF):
            output_dir = str(unfinished(step_of(name.removesuffix(HF))))
        return original(self, model, _TokenizerFiles(tokenizer), output_dir, **options)

    return save_model


class _TokenizerFiles:
    """Stands for a tokenizer where one is saved."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def save_pretrained(self, folder: str) -> None:
        """Copy the files of the base model; one that is no local folder is written anew."""
        source = Path(current_recipe().model_path).expanduser()
        if not source.is_dir():
            self._tokenizer.save_pretrained(folder)
            return
        for name in TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, Path(folder) / name)


def step_of(tag: str) -> int:
    """The step in a tag of OpenRLHF's."""
    return int(tag.removeprefix(TAG))


def unfinished(step: int) -> Path:
    """Where the checkpoint of a step is being written, by several processes."""
    return checkpoints().path / f"{TEMPORARY}step-{step:06d}"


def finish(step: int) -> None:
    """Everything of a step's checkpoint is written: put it in its place, and delete those that are too many."""
    target = checkpoints().path / f"step-{step:06d}"
    if target.exists():
        shutil.rmtree(target)
    unfinished(step).rename(target)
    checkpoints().prune(current_recipe().recipe.run.keep_checkpoints)


def checkpoints() -> Checkpoints:
    """Of the run."""
    from agentfly_core.runs import RunFolder

    return RunFolder(Path(current_job().folder)).checkpoints


def resumable(folder: Path) -> Path:
    """What OpenRLHF is told to load of a checkpoint."""
    return folder / TRAINER
