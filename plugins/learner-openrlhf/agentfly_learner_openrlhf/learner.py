"""The learner as AgentFly sees it. Importing this needs neither ray nor torch nor openrlhf."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from agentfly_core.types import UsageError

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe
    from agentfly_core.runs import RunFolder


class OpenRLHFLearner:
    """Trains a recipe with OpenRLHF, on the GPUs of a Ray cluster.

    Args:
        options: ``learner.options`` of the recipe: flags of OpenRLHF (``ds.zero_stage: 3``) and ``LaunchOptions``.
    """

    name: ClassVar[str] = "openrlhf"

    def __init__(self, **options: Any) -> None:
        self.options = options

    def check(self, recipe: LoadedRecipe) -> list[str]:
        """Reasons, each with its field and a way out, for which this recipe cannot be trained; [] if it can."""
        from agentfly_learner_openrlhf.flags import check

        return check(recipe)

    def check_installed(self, recipe: LoadedRecipe) -> None:
        """Find out that what trains this recipe from here is installed.

        Raises:
            MissingDependency: it is not.
        """
        from agentfly_learner_openrlhf import cluster, submit
        from agentfly_learner_openrlhf.flags import LearnerOptions

        options = LearnerOptions.split(recipe.recipe.learner.options)[0]
        (cluster if options.submit is None else submit).require()

    def dry_run(self, recipe: LoadedRecipe) -> dict[str, Any]:
        """The resolved flags and the GPUs of each role, as plain data, for ``agentfly train --dry-run``."""
        from agentfly_learner_openrlhf.flags import resolve

        return resolve(recipe).plain()

    def train(
        self, recipe: LoadedRecipe, folder: RunFolder, *, resume: bool = False, stop: threading.Event | None = None
    ) -> None:
        """Train to the recipe's last step, or until ``stop`` is set: the step in hand is finished and saved.

        Raises:
            UsageError: the recipe cannot be honoured, or the run has all its steps.
        """
        if reasons := self.check(recipe):
            raise UsageError("; ".join(reasons))
        from agentfly_learner_openrlhf.driver import launch
        from agentfly_learner_openrlhf.flags import LearnerOptions
        from agentfly_learner_openrlhf.submit import submit

        options, stop = LearnerOptions.split(recipe.recipe.learner.options)[0], stop or threading.Event()
        if options.submit is None:
            launch(recipe, folder, resume=resume, stop=stop)
        else:
            submit(recipe, folder, options, resume=resume, stop=stop)
