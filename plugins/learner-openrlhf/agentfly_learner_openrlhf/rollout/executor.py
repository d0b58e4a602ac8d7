"""OpenRLHF's agent executor: one long-lived rollout engine for each rollout actor.

OpenRLHF loads it from a two-line file in the run folder, which imports it from here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from agentfly_core.recipes.engine import RecipeEngine
from agentfly_core.runs import RunFolder
from agentfly_core.types import SamplingParams, Trajectory
from agentfly_learner_openrlhf.coordinator import coordinator_of
from agentfly_learner_openrlhf.job import current_job, current_recipe
from agentfly_learner_openrlhf.orphans import leave_group, own_children
from agentfly_learner_openrlhf.records import Order, ResourcesWanted, record
from agentfly_learner_openrlhf.rollout.backend import RolloutBackend
from agentfly_learner_openrlhf.rollout.groups import KEEP, Group
from agentfly_learner_openrlhf.rollout.parts import TrajectoryParts
from agentfly_learner_openrlhf.rollout.samples import to_sample
from agentfly_learner_openrlhf.rollout.weights import weight_clock
from agentfly_learner_openrlhf.rows import from_row


class AgentExecutor(AgentExecutorBase):
    """Hands OpenRLHF's samples to the engine, which runs on a thread and an event loop of its own.

    Made before the actor's vLLM engine, on the actor's event loop.
    """

    def __init__(self) -> None:
        leave_group()
        own_children()
        self._job = current_job()
        self._recipe = current_recipe()
        self._weights = weight_clock()
        self._parts = TrajectoryParts(RunFolder(Path(self._job.folder)).trajectories.path, _actor_name())
        self._groups: dict[str, Group] = {}
        self._engine: RecipeEngine | None = None

    async def execute(
        self,
        prompt: str,
        label: Order | ResourcesWanted,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """One chain. Whatever becomes of it is in its trajectory; nothing is raised on its account.

        Args:
            label: the chain's order, or a question that is answered in the same place.
            sampling_params: AgentFly's own for an evaluation. For training, vLLM's, which say nothing that the recipe
                does not.
        """
        if isinstance(label, ResourcesWanted):
            return {"label": self._engine.resource_metrics() if self._engine else {}}
        group = self._groups.setdefault(label.group, Group(label.chains))
        index = group.next_index()
        trajectory = await self._run(label, index, sampling_params, llm_engine)
        if group.end(trajectory):
            del self._groups[label.group]
        if label.split == "eval":
            return {"label": record(trajectory)}
        return to_sample(trajectory, prompt, score=await group.verdict() if self._job.filter_flat_groups else KEEP)

    async def _run(self, order: Order, index: int, sampling: Any, llm_engine: Any) -> Trajectory:
        if self._engine is None:
            self._engine = self._start(llm_engine)
        own = sampling if isinstance(sampling, SamplingParams) else None
        trajectory: Trajectory | None = None
        self._parts.begin()
        try:
            future = self._engine.submit(from_row(order.row), index, order.group, sampling=own, split=order.split)
            trajectory = await asyncio.wrap_future(future)
        finally:
            await self._parts.end(order.step, trajectory if self._recipe.recipe.run.save_trajectories else None)
        return trajectory

    def _start(self, llm_engine: Any) -> RecipeEngine:
        backend = RolloutBackend(llm_engine, asyncio.get_running_loop(), self._weights)
        engine = self._recipe.engine(backend, coordinator=coordinator_of(self._recipe.recipe))
        self._weights.listen(engine)
        return engine


def _actor_name() -> str:
    import ray

    return f"engine-{ray.get_runtime_context().get_actor_id()[:8]}"
