"""What every process of a run knows of it: a small file in the run folder, named by an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from agentfly_core.runs.files import replace_text

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe

ENV = "AGENTFLY_OPENRLHF_JOB"
"""Path of the job's file. Every process of a run has it in its environment, whoever started that process."""


@dataclass(frozen=True)
class Job:
    """One launch of a run.

    Attributes:
        id: unique; names the run's actors.
        folder: the run folder, on a file system that all nodes see.
        start: training steps done before.
        steps: training steps in all.
        own_algorithm: OpenRLHF's advantages and loss are wanted instead of the recipe's algorithm.
        filter_flat_groups: groups whose chains have equal rewards are replaced.
    """

    id: str
    folder: str
    start: int
    steps: int
    own_algorithm: bool = False
    filter_flat_groups: bool = False

    @property
    def path(self) -> Path:
        """Where it is written. Each launch has a file of its own: the path tells its processes from those before."""
        return own_folder(self.folder) / f"job-{self.id}.json"

    def write(self) -> None:
        """Write it for the run's processes."""
        replace_text(self.path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """A job as written."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))


def own_folder(folder: str | Path) -> Path:
    """The subfolder of a run folder with what only this learner needs."""
    return Path(folder) / "openrlhf"


def recipe_file(folder: str | Path) -> Path:
    """The recipe of the latest launch: a resumed run may have more steps than its own ``recipe.yaml`` says."""
    return own_folder(folder) / "recipe.yaml"


def write_recipe(recipe: LoadedRecipe, folder: str | Path) -> None:
    """Write it for the run's processes."""
    own_folder(folder).mkdir(exist_ok=True)
    text = yaml.safe_dump(recipe.resolved(), sort_keys=False, allow_unicode=True)
    replace_text(recipe_file(folder), text)


@cache
def current_job() -> Job:
    """The job that this process belongs to."""
    return Job.read(os.environ[ENV])


@cache
def current_recipe() -> LoadedRecipe:
    """Its recipe, with all plugins loaded in this process."""
    from agentfly_core.recipes.load import load_recipe

    return load_recipe(recipe_file(current_job().folder))
