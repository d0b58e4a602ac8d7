"""A look at every node before models are loaded: can it run this recipe?"""

from __future__ import annotations

from typing import Any

from agentfly_core.types import UsageError
from agentfly_learner_openrlhf.failures import first_words, root_cause


def check_nodes() -> None:
    """Have each node with a GPU read the run's recipe from the run folder, with all plugins that it names.

    Raises:
        UsageError: one cannot; the message says which, and why.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
    look = ray.remote(num_cpus=0, max_retries=0)(look_around)
    calls: dict[str, Any] = {
        node["NodeManagerAddress"]: look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    }
    for address, call in calls.items():
        try:
            ray.get(call)
        except Exception as error:
            cause = root_cause(error)
            raise UsageError(
                f"the node {address} cannot run this recipe: {type(cause).__name__}: {first_words(str(cause))}. Every "
                "node needs agentfly-core, agentfly-plugin-learner-openrlhf and the recipe's plugins (installed, or in "
                "learner.options.working_dir), and has to see the run folder (run.root) and the recipe's files under "
                "the same paths"
            ) from error


def look_around() -> None:
    """On a node: load what its workers will load."""
    from agentfly_learner_openrlhf.job import current_recipe

    current_recipe().template()
