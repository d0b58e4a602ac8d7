"""What OpenRLHF cannot do, said before anything starts: each reason names the field and a way out."""

from __future__ import annotations

import math
from argparse import Action
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentfly_core.types import UsageError, nearest
from agentfly_learner_openrlhf.flags.mapping import FIXED, Plan, Setting
from agentfly_learner_openrlhf.flags.options import LORA

if TYPE_CHECKING:
    from agentfly_core.recipes.load import LoadedRecipe

LARGEST_SEED = 2**31 - 1
ESTIMATOR = "algo.advantage.estimator"

IMAGES = "images do not reach OpenRLHF's engines yet; train on text"

REFUSED = {
    "ds.lora.rank": LORA,
    "ds.load_in_4bit": LORA,
    "data.apply_chat_template": "chains begin with the recipe's own template (model.template); leave it out",
    "data.input_template": "chains begin with the recipe's own template (model.template); leave it out",
    "data.max_samples": "the number of tasks follows from train.steps and data.limit; set these",
    "data.max_images_per_prompt": IMAGES,
    "actor.freeze_visual_encoder": IMAGES,
    "reward.remote_url": "chains are scored by the recipe's rewards; write a @reward that calls it",
    "reward.model_name_or_path": "chains are scored by the recipe's rewards; write a @reward that calls the model",
    "train.colocate_critic_reward": "there is no reward model to share GPUs with; use learner.options.colocate",
    "eval.dataset": "evaluation is AgentFly's own; use data.eval and evaluation",
    "eval.steps": "evaluation is AgentFly's own; use evaluation.every",
    "eval.temperature": "evaluation is AgentFly's own; use evaluation.modes and rollout.temperature",
    "eval.n_samples_per_prompt": "evaluation is AgentFly's own; use evaluation.chains_per_task",
    "ckpt.disable_ds": "without DeepSpeed's checkpoints no run can go on; use run.checkpoint_every",
}
"""Flags that would break what the recipe says."""

ALGORITHM = (
    "algo.advantage.",
    "actor.eps_clip",
    "actor.dual_clip",
    "actor.policy_loss_type",
    "actor.loss_agg_mode",
    "reward.clip_range",
    "reward.overlong",
    "reward.stop_properly",
)
"""Beginnings of flags of OpenRLHF's own advantages and losses, which are at work only if ``ESTIMATOR`` is given."""


CRITIC = ("critic.", "reward.normalize_enable")
"""Beginnings of flags that are at work only if a critic is trained."""


def recipe_reasons(plan: Plan, loaded: LoadedRecipe) -> Iterator[str]:
    """Fields of the recipe itself."""
    r = plan.recipe
    if r.model.history == "template":
        yield (
            "model.history: template makes several training sequences of one chain, and OpenRLHF takes one a chain; "
            "use append"
        )
    if r.model.device not in ("auto", "cuda"):
        yield f"model.device: OpenRLHF trains on the cluster's GPUs, not on {r.model.device!r}; use auto"
    if r.model.dtype == "float16":
        yield "model.dtype: OpenRLHF's engines compute in bfloat16, and the trainer must do the same; use bfloat16"
    if r.rollout.backend.name not in ("hf", "vllm"):
        name = r.rollout.backend.name
        yield f"rollout.backend: OpenRLHF generates with its own vLLM engines, not with {name!r}; leave it out"
    if r.rollout.temperature == 0:
        yield "rollout.temperature: 0 samples the same chain every time, so nothing is learned; use 1.0"
    if r.deterministic:
        yield (
            "deterministic: on a cluster chains end in another order each time, so no run repeats another; set false "
            "(learner.options.train.full_determinism_enable: true fixes the kernels)"
        )
    if r.seed > LARGEST_SEED:
        yield f"seed: OpenRLHF takes seeds up to {LARGEST_SEED}; use a smaller one"
    if plan.needs.anchors and r.environment is None:
        yield f"environment: {r.algorithm.name} needs one that names its states; use grpo without one"
    optimizer = r.train.optimizer
    if optimizer.schedule == "linear" and optimizer.final_lr_fraction > 0:
        yield (
            "train.optimizer.final_lr_fraction: OpenRLHF's linear schedule always ends at 0; use 0.0, or "
            "schedule: cosine"
        )
    if r.evaluation.every or r.evaluation.before or r.evaluation.after:
        try:
            loaded.eval_tasks(1)
        except UsageError as error:
            off = "or turn evaluation.before and evaluation.after off"
            yield f"{error}, {off}" if r.data.eval is None else str(error)


def batch_reasons(plan: Plan) -> Iterator[str]:
    """Every GPU must get the same number of chains: OpenRLHF hangs otherwise."""
    train, ranks = plan.recipe.train, plan.layout.data_parallel
    parts = train.minibatches * ranks
    if plan.chains % parts:
        step = parts // math.gcd(parts, train.chains_per_task)
        tasks = -(-train.tasks_per_step // step) * step
        yield (
            f"train.tasks_per_step: {train.tasks_per_step} tasks of {train.chains_per_task} chains cannot be divided "
            f"equally among {ranks} data-parallel GPUs and {train.minibatches} minibatches; use {tasks} tasks"
        )


def option_reasons(plan: Plan) -> Iterator[str]:
    """Typed options that exclude each other."""
    o, at = plan.options, "learner.options"
    yield from plan.layout.reasons
    if o.partial_rollout and not o.asynchronous:
        yield f"{at}.partial_rollout: chains outlive a weight update only with async: true; set it"
    if o.partial_rollout and o.prefix_caching:
        yield (
            f"{at}.prefix_caching: with partial_rollout vLLM's cache cannot be emptied at a weight update, as chains "
            "are using it; leave it out"
        )
    if o.queue > 1 and not o.asynchronous:
        yield f"{at}.queue: batches wait only with async: true; set it, or leave queue out"
    if o.filter_flat_groups and plan.recipe.train.chains_per_task < 2:
        yield f"{at}.filter_flat_groups: a group of one chain is always flat; use train.chains_per_task: 2 or more"
    if o.ring_attention > 1 and not o.packing:
        yield f"{at}.ring_attention: sequences are shared only when packed; set packing: true"
    if o.train_tensor_parallel > 1 and o.zero_stage == 3:
        yield f"{at}.train_tensor_parallel: DeepSpeed has it up to zero_stage 2; use that, or ring_attention"
    critics = sorted({"critic_lr", "critic_warmup_steps"} & o.model_fields_set)
    if critics and not plan.needs.critic:
        yield f"{at}.{critics[0]}: {plan.recipe.algorithm.name} has no critic; leave it out, or use ppo"


def flag_reasons(
    raw: Mapping[str, Any], mapped: list[Setting], known: Mapping[str, Action], *, critic: bool
) -> Iterator[str]:
    """Flags given by name that do not exist, or that something else in the recipe decides."""
    sources = {setting.flag: setting.source for setting in mapped}
    own_algorithm = ESTIMATOR in raw
    for flag, value in raw.items():
        at = f"learner.options.{flag}"
        if flag not in known:
            guess = nearest(flag, known)
            also = f"; did you mean {' or '.join(map(repr, guess))}?" if guess else ""
            yield f"{at}: OpenRLHF has no such flag{also}"
        elif flag in REFUSED and value not in (0, False, None):
            yield f"{at}: {REFUSED[flag]}"
        elif problem := _wrong_value(flag, value, known):
            yield f"{at}: {problem}"
        elif own_algorithm and flag.startswith((*ALGORITHM, "algo.kl.")):
            continue
        elif flag.startswith(ALGORITHM):
            yield (
                f"{at}: does nothing, as advantages and loss are AgentFly's; use algorithm.options, or give "
                f"{ESTIMATOR} as well to have OpenRLHF's own"
            )
        elif flag.startswith(CRITIC) and not critic:
            yield f"{at}: does nothing, as no critic is trained; leave it out, or use ppo"
        elif flag in sources:
            instead = "AgentFly needs it as it is" if sources[flag] == FIXED else f"set {sources[flag]}"
            yield f"{at}: {instead}; leave the flag out"


def _wrong_value(flag: str, value: Any, known: Mapping[str, Action]) -> str:
    """What is wrong with a flag's value as such: one that takes none on the command line is true or false here."""
    action = known[flag]
    if value is None:
        return "has no value; give one, or leave it out"
    if isinstance(value, list | tuple):
        if action.nargs in (None, 0, "?"):
            return "takes one value, not a list"
        if any(isinstance(part, str) and part.startswith("-") for part in value):
            return "has a value that begins with a dash and would be another flag"
    if action.nargs != 0:
        return "takes a value, not a switch" if isinstance(value, bool) else ""
    if not isinstance(value, bool):
        return f"is a switch: true or false, not {value!r:.60}"
    if not value and action.default is True:
        others = [name for name, other in known.items() if other.dest == action.dest and name != flag]
        return f"is on unless switched off by {others[0]}: true" if others else "cannot be switched off"
    return ""
