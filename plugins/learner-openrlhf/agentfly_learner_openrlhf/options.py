"""Options of the learner that are no OpenRLHF flags: how the run is launched and watched.

``learner.options`` holds both: a key with a dot (``ds.zero_stage``) is a flag of OpenRLHF, one without is one of these.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from agentfly_core.recipes.schema import Section

Seconds = Annotated[float, Field(gt=0)]


def _web_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must be the address of a dashboard, such as http://head:8265")
    return value


class LaunchOptions(Section):
    """Where the run is started, and how long it may stand still."""

    ray_address: str | None = None
    """An existing cluster, as ``ray.init`` takes it; None uses ``RAY_ADDRESS`` or else starts Ray in this process."""
    submit: Annotated[str, AfterValidator(_web_address)] | None = None
    """Address of a Ray dashboard (``http://head:8265``): the run is submitted there as a job."""
    working_dir: str | None = None
    """Folder that Ray ships to every node, with plugins that are not installed there."""
    filter_reserve: Annotated[float, Field(gt=0)] = 4.0
    """With ``filter_flat_groups``: tasks at hand for each one trained on. A run whose tasks are used up fails."""
    worker_logs: bool = False
    """Show what Ray's workers print; it is in Ray's session folder in any case."""
    cluster_timeout: Seconds = 600.0
    """Seconds to wait for the cluster's GPUs."""
    first_batch_timeout: Seconds = 3600.0
    """Seconds from then to the first batch of chains: models are loaded in it."""
    step_timeout: Seconds = 7200.0
    """Seconds a training step may take."""
