"""From a loaded recipe to the arguments OpenRLHF starts with, through OpenRLHF's own parser and checks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from agentfly_core.types import Needs, UsageError
from agentfly_learner_openrlhf.flags.layout import divide
from agentfly_learner_openrlhf.flags.mapping import Plan, Setting, settings
from agentfly_learner_openrlhf.flags.notes import notes
from agentfly_learner_openrlhf.flags.options import LearnerOptions
from agentfly_learner_openrlhf.flags.paths import RunPaths
from agentfly_learner_openrlhf.flags.placement import Placement, placement_of
from agentfly_learner_openrlhf.flags.refusals import (
    ESTIMATOR,
    batch_reasons,
    flag_reasons,
    option_reasons,
    recipe_reasons,
)
from agentfly_learner_openrlhf.flags.upstream import REQUIREMENT, Upstream, arguments, installed

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe

ASKED_FOR = "Using --colocate_all_models in async RLHF only colocates DeepSpeed models."
"""OpenRLHF's warning of what ``colocate: training`` means by that flag."""

PLACEHOLDER = "RUN"
"""Stands for the run folder where there is none yet."""


@dataclass(frozen=True)
class Resolved:
    """What a run starts with.

    Attributes:
        argv: arguments of ``openrlhf.cli.train_ppo_ray``.
        namespace: the same after OpenRLHF's parser and checks, as its ``train`` takes it.
        placement: GPUs a role.
        batches: how many chains and steps there are, by name.
        settings: the flags with the fields they come from.
        notes: what is done otherwise than the recipe's words suggest.
        own_algorithm: ``learner.options`` asks for OpenRLHF's advantages and loss instead of ``algorithm``.
        version: of OpenRLHF.
    """

    argv: list[str]
    namespace: SimpleNamespace
    placement: Placement
    batches: dict[str, int]
    settings: list[Setting]
    notes: list[str]
    own_algorithm: bool
    version: str

    def plain(self) -> dict[str, Any]:
        """As JSON-able data, for ``agentfly train --dry-run``."""
        return {
            "openrlhf": self.version,
            "batches": self.batches,
            "placement": self.placement.plain(),
            "flags": [{"flag": f"--{s.flag}", "value": s.value, "from": s.source} for s in self.settings],
            "notes": self.notes,
        }


def resolve(loaded: LoadedRecipe, paths: RunPaths | None = None, *, resume: bool = False) -> Resolved:
    """The arguments of a run; the same recipe always gives the same ones. Needs neither ray nor torch.

    Args:
        paths: files of the run; None stands for a folder ``RUN``.
        resume: go on from the checkpoints there.

    Raises:
        MissingDependency: OpenRLHF is not installed.
        UsageError: it cannot honour the recipe (with all reasons), or is a version that is not known.
    """
    upstream = installed()
    plan, raw = _plan(loaded, paths or RunPaths.inside(PLACEHOLDER), resume=resume)
    mapped = settings(plan)
    _check_known(mapped, upstream)
    reasons = [
        *recipe_reasons(plan, loaded),
        *option_reasons(plan),
        *([] if plan.layout.reasons else batch_reasons(plan)),
        *flag_reasons(raw, mapped, upstream.flags, critic=plan.needs.critic),
    ]
    if reasons:
        raise Refused(reasons)
    given = [Setting(flag, value, "learner.options") for flag, value in raw.items()]
    every = [s for s in mapped if s.flag not in raw] + given
    argv = list(arguments({s.flag: s.value for s in every}))
    parsed = upstream.parse(argv)
    options = plan.options
    placement = placement_of(parsed.namespace, nodes=options.nodes, gpus_per_node=options.gpus_per_node)
    said = [*notes(plan), *(f"OpenRLHF: {text}" for text in parsed.warnings if text != ASKED_FOR)]
    own = ESTIMATOR in raw
    return Resolved(argv, parsed.namespace, placement, plan.batches, every, said, own, upstream.version)


def check(loaded: LoadedRecipe) -> list[str]:
    """Reasons, each with its field and a way out, for which OpenRLHF cannot train this recipe; [] if it can.

    Raises:
        MissingDependency: OpenRLHF is not installed.
        UsageError: a wrong option, or a version of OpenRLHF that is not known.
    """
    try:
        resolve(loaded)
    except Refused as error:
        return error.reasons
    return []


class Refused(UsageError):
    """OpenRLHF cannot honour the recipe."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


def _plan(loaded: LoadedRecipe, paths: RunPaths, *, resume: bool) -> tuple[Plan, dict[str, Any]]:
    recipe = loaded.recipe
    options, raw = LearnerOptions.split(recipe.learner.options)
    needs = Needs(critic=raw[ESTIMATOR] == "gae") if ESTIMATOR in raw else loaded.algorithm.needs
    reference = recipe.train.kl.coef > 0 or needs.reference
    layout = divide(options, reference=reference, critic=needs.critic)
    limit = recipe.rollout.max_tokens or _context(loaded.model_path)
    return Plan(recipe, options, needs, layout, paths, loaded.model_path, limit, resume), raw


def _context(model: str) -> int:
    """The longest sequence of a model in a local folder, by its ``config.json``."""
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        length = config.get("text_config", config)["max_position_embeddings"]
        return int(length)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            "rollout.max_tokens: OpenRLHF needs a length limit, and the model is not here to be asked; set it, to "
            "4096 say"
        ) from None


def _check_known(mapped: list[Setting], upstream: Upstream) -> None:
    flags = upstream.flags
    if missing := [setting.flag for setting in mapped if setting.flag not in flags]:
        raise UsageError(
            f"OpenRLHF {upstream.version} has no flag --{missing[0]}, which agentfly-plugin-learner-openrlhf sets. "
            f"Install a version that it knows, pip install '{REQUIREMENT}', or a newer plugin"
        )
