"""Tasks as rows of the data files that OpenRLHF reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from agentfly_core.runs.encoding import dump, load
from agentfly_core.runs.files import replacing
from agentfly_core.types import Task
from agentfly_learner_openrlhf.flags.paths import LABEL_KEY, PROMPT_KEY


def to_row(task: Task) -> str:
    """A task as JSON text: OpenRLHF's data library would make all rows' fields alike."""
    return dump({"id": task.id, "messages": task.messages, "fields": task.fields})


def from_row(row: str) -> Task:
    """The task that ``to_row`` was given."""
    plain = load(row)
    return Task(plain["id"], tuple(plain["messages"]), plain["fields"])


def write_rows(path: Path, tasks: Iterable[Task]) -> None:
    """Write a data file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps({PROMPT_KEY: task.id, LABEL_KEY: to_row(task)}) + "\n")
