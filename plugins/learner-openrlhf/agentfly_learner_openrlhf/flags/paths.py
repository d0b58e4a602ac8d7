"""Files of a run that OpenRLHF is told about."""

from __future__ import annotations

from dataclasses import dataclass

from agentfly_core.types import UsageError

PROMPT_KEY, LABEL_KEY = "prompt", "label"
"""Columns of the data files: what names a task, and the task itself as JSON text."""


@dataclass(frozen=True)
class RunPaths:
    """Where OpenRLHF reads and writes. The data files have ``PROMPT_KEY`` and ``LABEL_KEY``."""

    train: str
    """One row a task, ``train.steps * train.tasks_per_step`` of them."""
    eval: str
    agent: str
    """The Python file with OpenRLHF's ``AgentExecutor``."""
    checkpoints: str
    model: str
    """Folder of the final Hugging Face model."""
    logs: str

    def __post_init__(self) -> None:
        for path in (self.train, self.eval):
            if set(path) & {",", "@"}:
                raise UsageError(f"run.root: OpenRLHF takes ',' and '@' in {path!r} for separators; use another folder")

    @classmethod
    def inside(cls, folder: str) -> RunPaths:
        """The usual places in a run folder."""
        own = f"{folder}/openrlhf"
        return cls(
            train=f"{own}/train.jsonl",
            eval=f"{own}/eval.jsonl",
            agent=f"{own}/agent.py",
            checkpoints=f"{own}/checkpoints",
            model=f"{folder}/model",
            logs=f"{own}/logs",
        )
