"""Files of a run that OpenRLHF is told about."""

from __future__ import annotations

from dataclasses import dataclass

from agentfly_core.types import UsageError

PROMPT_KEY, LABEL_KEY = "prompt", "label"
"""Columns of the data file: what names a task, and the task itself as JSON text."""


@dataclass(frozen=True)
class RunPaths:
    """Where OpenRLHF reads and writes. The data file has ``PROMPT_KEY`` and ``LABEL_KEY``."""

    train: str
    """One row a task, ``train.steps * train.tasks_per_step`` of them."""
    agent: str
    """The Python file with OpenRLHF's ``AgentExecutor``."""
    checkpoints: str
    model: str
    """Folder of the final Hugging Face model."""
    logs: str

    def __post_init__(self) -> None:
        if set(self.train) & {",", "@"}:
            raise UsageError(
                f"run.root: OpenRLHF takes ',' and '@' in {self.train!r} for separators; use another folder"
            )

    @classmethod
    def inside(cls, folder: str) -> RunPaths:
        """The usual places in a run folder."""
        own = f"{folder}/openrlhf"
        return cls(
            train=f"{own}/train.jsonl",
            agent=f"{own}/agent.py",
            checkpoints=f"{own}/checkpoints",
            model=f"{folder}/model",
            logs=f"{own}/logs",
        )
