"""A recipe in OpenRLHF's flags, checked by OpenRLHF's own parser. Needs neither ray nor torch nor vLLM."""

from agentfly_learner_openrlhf.flags.options import LearnerOptions
from agentfly_learner_openrlhf.flags.paths import LABEL_KEY, PROMPT_KEY, RunPaths
from agentfly_learner_openrlhf.flags.placement import Placement, Role
from agentfly_learner_openrlhf.flags.resolution import Refused, Resolved, check, resolve

__all__ = [
    "LABEL_KEY",
    "PROMPT_KEY",
    "LearnerOptions",
    "Placement",
    "Refused",
    "Resolved",
    "Role",
    "RunPaths",
    "check",
    "resolve",
]
