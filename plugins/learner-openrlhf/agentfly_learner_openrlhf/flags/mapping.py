"""A recipe in OpenRLHF's flags: every option that has a counterpart, with the field it comes from.

Evaluation has none: it is AgentFly's own, between OpenRLHF's steps, as sampled and greedy need different parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentfly_core.recipes.schema import OptimizerSection, Recipe
from agentfly_core.types import Needs
from agentfly_learner_openrlhf.flags.layout import Layout
from agentfly_learner_openrlhf.flags.options import LearnerOptions
from agentfly_learner_openrlhf.flags.paths import LABEL_KEY, PROMPT_KEY, RunPaths


@dataclass(frozen=True)
class Setting:
    """A flag (without dashes), its value, and the field of the recipe that says so, or ``fixed``."""

    flag: str
    value: Any
    source: str


FIXED = "fixed"
REFERENCE_ONLY = 1e-8
"""OpenRLHF keeps a reference model if its KL coefficient is positive, and uses the number nowhere else here."""


@dataclass(frozen=True)
class Plan:
    """What the flags are made from.

    Attributes:
        model: folder or hub id.
        max_tokens: length limit of a chain, prompt included.
    """

    recipe: Recipe
    options: LearnerOptions
    needs: Needs
    layout: Layout
    paths: RunPaths
    model: str
    max_tokens: int
    resume: bool = False

    @property
    def chains(self) -> int:
        """Chains of a step."""
        return self.recipe.train.tasks_per_step * self.recipe.train.chains_per_task

    @property
    def minibatch(self) -> int:
        """Chains of an optimizer step."""
        return self.chains // self.recipe.train.minibatches

    @property
    def optimizer_steps(self) -> int:
        """Of the whole run."""
        train = self.recipe.train
        return train.steps * train.epochs * train.minibatches

    @property
    def micro_batch(self) -> int:
        """Chains of a forward pass: as many of full length as ``train.micro_batch_tokens`` allows, in equal parts."""
        share = self.minibatch // self.layout.data_parallel
        fits = max(1, self.recipe.train.micro_batch_tokens // self.max_tokens)
        return max((n for n in range(1, share + 1) if share % n == 0 and n <= fits), default=1)

    @property
    def batches(self) -> dict[str, int]:
        """The numbers of a run."""
        return {
            "steps": self.recipe.train.steps,
            "chains_per_step": self.chains,
            "optimizer_steps": self.optimizer_steps,
            "chains_per_optimizer_step": self.minibatch,
            "data_parallel": self.layout.data_parallel,
        }


def settings(plan: Plan) -> list[Setting]:
    """All flags of the recipe, in a fixed order."""
    models = (_model, _optimizer, _critic, _kl, _algorithm)
    chains = (_data, _rollout, _batches)
    cluster = (_saving, _engines, _deepspeed, _placement)
    return [setting for part in (*models, *chains, *cluster) for setting in part(plan)]


def _model(plan: Plan) -> Iterator[Setting]:
    model, options = plan.recipe.model, plan.options
    yield Setting("actor.model_name_or_path", plan.model, "model.path")
    yield Setting("ds.param_dtype", "bf16", "model.dtype")
    if options.packing:
        yield Setting("ds.attn_implementation", "flash_attention_2", "learner.options.packing")
    else:
        yield Setting("ds.attn_implementation", model.attention, "model.attention")


def _data(plan: Plan) -> Iterator[Setting]:
    yield Setting("train.agent_func_path", plan.paths.agent, FIXED)
    yield Setting("data.prompt_dataset", plan.paths.train, "data.train")
    yield Setting("data.input_key", PROMPT_KEY, FIXED)
    yield Setting("data.label_key", LABEL_KEY, FIXED)
    yield Setting("train.num_episodes", 1, "train.steps")
    yield Setting("train.seed", plan.recipe.seed, "seed")


def _rollout(plan: Plan) -> Iterator[Setting]:
    rollout, options = plan.recipe.rollout, plan.options
    yield Setting("rollout.temperature", rollout.temperature, "rollout.temperature")
    yield Setting("rollout.top_p", rollout.top_p, "rollout.top_p")
    yield Setting("rollout.max_new_tokens", rollout.max_tokens_per_turn, "rollout.max_tokens_per_turn")
    yield Setting("data.max_len", plan.max_tokens, "rollout.max_tokens")
    yield Setting("train.async_enable", options.asynchronous, "learner.options.async")
    yield Setting("train.async_queue_size", options.queue, "learner.options.queue")
    yield Setting("train.partial_rollout_enable", options.partial_rollout, "learner.options.partial_rollout")
    yield Setting("algo.dynamic_filtering_enable", options.filter_flat_groups, "learner.options.filter_flat_groups")
    yield Setting("algo.dynamic_filtering_range", (0.0, 1.0), FIXED)


def _batches(plan: Plan) -> Iterator[Setting]:
    train, packing = plan.recipe.train, plan.options.packing
    yield Setting("rollout.batch_size", train.tasks_per_step, "train.tasks_per_step")
    yield Setting("rollout.n_samples_per_prompt", train.chains_per_task, "train.chains_per_task")
    yield Setting("train.batch_size", plan.minibatch, "train.minibatches")
    yield Setting("train.max_epochs", train.epochs, "train.epochs")
    yield Setting("ds.packing_samples", packing, "learner.options.packing")
    yield Setting("train.dynamic_batch_enable", packing, "learner.options.packing")
    if packing:
        yield Setting("train.max_tokens_per_gpu", train.micro_batch_tokens, "train.micro_batch_tokens")
        yield Setting("rollout.max_tokens_per_gpu", train.micro_batch_tokens, "train.micro_batch_tokens")
    rows = 1 if packing else plan.micro_batch
    yield Setting("train.micro_batch_size", rows, "train.micro_batch_tokens")
    yield Setting("rollout.micro_batch_size", rows, "train.micro_batch_tokens")


def _optimizer(plan: Plan) -> Iterator[Setting]:
    optimizer = plan.recipe.train.optimizer
    at = "train.optimizer"
    if optimizer.name == "muon":
        yield Setting("actor.muon.lr", optimizer.lr * optimizer.matrix_lr_scale, f"{at}.matrix_lr_scale")
        yield Setting("actor.muon.momentum", 0.95, FIXED)
    yield from _trained("actor", plan, optimizer.lr, f"{at}.lr")


def _critic(plan: Plan) -> Iterator[Setting]:
    if plan.needs.critic:
        options = plan.options
        yield Setting("critic.model_name_or_path", plan.model, "model.path")
        yield from _trained("critic", plan, options.critic_lr, "learner.options.critic_lr")
        yield Setting("critic.freezing_steps", options.critic_warmup_steps - 1, "learner.options.critic_warmup_steps")


def _trained(who: str, plan: Plan, lr: float, lr_source: str) -> Iterator[Setting]:
    """The optimizer of the policy (``actor``) or the critic, and its schedule."""
    optimizer, at = plan.recipe.train.optimizer, "train.optimizer"
    muon = who == "actor" and optimizer.name == "muon"
    yield Setting(f"{who}.optim", "muon" if muon else "adam", f"{at}.name" if who == "actor" else FIXED)
    yield Setting(f"{who}.adam.lr", lr, lr_source)
    yield Setting(f"{who}.adam.betas", optimizer.betas, f"{at}.betas")
    yield Setting(f"{who}.adam.eps", optimizer.eps, f"{at}.eps")
    yield Setting(f"{who}.adam.weight_decay", optimizer.weight_decay, f"{at}.weight_decay")
    # DeepSpeed clips what Muon has made of the gradient, whose norm is in the hundreds whatever the gradient's was.
    yield Setting(f"{who}.max_norm", 0.0 if muon else optimizer.max_grad_norm, f"{at}.max_grad_norm")
    yield Setting(f"{who}.lr_scheduler", scheduler(optimizer), f"{at}.schedule")
    yield Setting(f"{who}.lr_warmup_ratio", warmup_ratio(optimizer, plan.optimizer_steps), f"{at}.warmup_steps")
    if optimizer.schedule == "cosine":
        yield Setting(f"{who}.min_lr_ratio", optimizer.final_lr_fraction, f"{at}.final_lr_fraction")


def scheduler(optimizer: OptimizerSection) -> str:
    """The name that transformers knows the schedule by."""
    if optimizer.schedule == "cosine":  # of the two, only the second has a first step of more than 0 with warm-up
        return "cosine_warmup_with_min_lr" if optimizer.warmup_steps else "cosine_with_min_lr"
    if optimizer.schedule == "linear":
        return "linear"
    return "constant_with_warmup" if optimizer.warmup_steps else "constant"


def warmup_ratio(optimizer: OptimizerSection, total: int) -> float:
    """The share of all optimizer steps from which OpenRLHF, which rounds up, gets ``warmup_steps`` again."""
    return max(0.0, (optimizer.warmup_steps - 0.5) / total)


def _kl(plan: Plan) -> Iterator[Setting]:
    kl = plan.recipe.train.kl
    reference_only = kl.coef == 0 and plan.needs.reference
    yield Setting("algo.kl.init_coef", REFERENCE_ONLY if reference_only else kl.coef, "train.kl.coef")
    yield Setting("algo.kl.use_loss", kl.coef > 0, "train.kl.coef")
    yield Setting("algo.kl.estimator", kl.kind if kl.coef > 0 else "k1", "train.kl.kind")


def _algorithm(plan: Plan) -> Iterator[Setting]:
    """OpenRLHF's own advantages and loss are replaced; these decide which models and numbers it provides for ours."""
    yield Setting("algo.advantage.estimator", "gae" if plan.needs.critic else "reinforce", "algorithm")
    yield Setting("algo.advantage.is_correction_level", "token", FIXED)


def _saving(plan: Plan) -> Iterator[Setting]:
    run, options = plan.recipe.run, plan.options
    yield Setting("ckpt.path", plan.paths.checkpoints, "run.root")
    yield Setting("ckpt.output_dir", plan.paths.model, "run.root")
    yield Setting("ckpt.save_steps", run.checkpoint_every or plan.recipe.train.steps, "run.checkpoint_every")
    yield Setting("ckpt.max_num", run.keep_checkpoints, "run.keep_checkpoints")
    yield Setting("ckpt.best_metric_key", "none", FIXED)
    yield Setting("ckpt.save_hf", True, FIXED)
    yield Setting("ckpt.load_enable", plan.resume, FIXED)
    yield Setting("train.enable_ema", options.ema is not None, "learner.options.ema")
    if options.ema is not None:
        yield Setting("train.ema_beta", options.ema, "learner.options.ema")
    yield Setting("logger.tensorboard_dir", plan.paths.logs, FIXED)
    yield Setting("logger.logging_steps", 1, FIXED)
    yield Setting("logger.wandb.run_name", plan.recipe.name, "name")


def _engines(plan: Plan) -> Iterator[Setting]:
    options, together = plan.options, plan.layout.colocate == "all"
    at = "learner.options"
    caching = not options.partial_rollout if options.prefix_caching is None else options.prefix_caching
    memory = options.engine_memory or (0.6 if together else 0.9)
    yield Setting("vllm.num_engines", plan.layout.engines, f"{at}.engines")
    yield Setting("vllm.tensor_parallel_size", options.tensor_parallel, f"{at}.tensor_parallel")
    yield Setting("vllm.gpu_memory_utilization", memory, f"{at}.engine_memory")
    yield Setting("vllm.enable_prefix_caching", caching, f"{at}.prefix_caching")
    yield Setting("vllm.enable_sleep", together and options.sleep, f"{at}.sleep")
    yield Setting("ds.enable_sleep", together and options.sleep, f"{at}.sleep")


def _deepspeed(plan: Plan) -> Iterator[Setting]:
    options, at = plan.options, "learner.options"
    yield Setting("ds.zero_stage", options.zero_stage, f"{at}.zero_stage")
    yield Setting("ds.adam_offload", options.offload_optimizer, f"{at}.offload_optimizer")
    yield Setting("ref.offload", options.offload_reference, f"{at}.offload_reference")
    yield Setting("actor.gradient_checkpointing_enable", options.gradient_checkpointing, f"{at}.gradient_checkpointing")
    yield Setting("ds.ring_attn_size", options.ring_attention, f"{at}.ring_attention")
    yield Setting("ds.tensor_parallel_size", options.train_tensor_parallel, f"{at}.train_tensor_parallel")


def _placement(plan: Plan) -> Iterator[Setting]:
    layout, options = plan.layout, plan.options
    even = layout.training % options.nodes == 0
    nodes = options.nodes if even else 1  # only the product counts: Ray packs the processes as it finds room
    for who in ("actor", "ref", "critic"):
        yield Setting(f"{who}.num_nodes", nodes, "learner.options.nodes")
        yield Setting(f"{who}.num_gpus_per_node", layout.training // nodes, "learner.options.gpus_per_node")
    training = layout.colocate == "training"
    everything = layout.colocate == "all" or (training and options.asynchronous)
    yield Setting("train.colocate_all", everything, "learner.options.colocate")
    yield Setting("train.colocate_actor_ref", training and not options.asynchronous, "learner.options.colocate")
