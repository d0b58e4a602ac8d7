"""Every option of a recipe arrives in OpenRLHF's namespace, where its code reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest
from agentfly_learner_openrlhf.flags import LearnerOptions, resolve
from agentfly_learner_openrlhf.flags.upstream import installed
from agentfly_learner_openrlhf.options import LaunchOptions

from agentfly_core.recipes.describe import describe_schema

RECIPE: dict[str, list[tuple[Any, str, Any]]] = {
    "name": [("night-run", "logger.wandb.run_name", "night-run")],
    "seed": [(7, "train.seed", 7)],
    "model.path": [("org/other", "actor.model_name_or_path", "org/other")],
    "model.dtype": [("bfloat16", "ds.param_dtype", "bf16"), ("float32", "ds.param_dtype", "bf16")],
    "model.attention": [("eager", "ds.attn_implementation", "eager"), ("sdpa", "ds.attn_implementation", "sdpa")],
    "rollout.temperature": [(0.7, "rollout.temperature", 0.7)],
    "rollout.max_tokens_per_turn": [(100, "rollout.max_new_tokens", 100)],
    "rollout.max_tokens": [(3000, "data.max_len", 3000)],
    "train.tasks_per_step": [(16, "rollout.batch_size", 16), (16, "train.batch_size", 128)],
    "train.chains_per_task": [(4, "rollout.n_samples_per_prompt", 4), (4, "train.batch_size", 32)],
    "train.minibatches": [(2, "train.batch_size", 32)],
    "train.epochs": [(3, "train.max_epochs", 3)],
    "train.micro_batch_tokens": [  # 64 chains on 8 GPUs: 8 each, of at most 4096 tokens
        (4096, "train.micro_batch_size", 1),
        (8192, "train.micro_batch_size", 2),
        (16384, "rollout.micro_batch_size", 4),
        (30000, "train.micro_batch_size", 4),
        (10**6, "train.micro_batch_size", 8),
        (100, "train.micro_batch_size", 1),
    ],
    "train.optimizer.name": [("muon", "actor.optim", "muon"), ("adamw", "actor.optim", "adam")],
    "train.optimizer.lr": [(2.5e-6, "actor.adam.lr", 2.5e-6)],
    "train.optimizer.betas": [([0.8, 0.99], "actor.adam.betas", [0.8, 0.99])],
    "train.optimizer.eps": [(1e-6, "actor.adam.eps", 1e-6)],
    "train.optimizer.weight_decay": [(0.1, "actor.adam.weight_decay", 0.1)],
    "train.optimizer.max_grad_norm": [(0.5, "actor.max_norm", 0.5)],
    "train.optimizer.warmup_steps": [(5, "actor.lr_warmup_ratio", 0.045), (0, "actor.lr_warmup_ratio", 0.0)],
    "train.optimizer.schedule": [
        ("constant", "actor.lr_scheduler", "constant"),
        ("linear", "actor.lr_scheduler", "linear"),
        ("cosine", "actor.lr_scheduler", "cosine_with_min_lr"),
    ],
    "train.kl.coef": [
        (0.02, "algo.kl.init_coef", 0.02),
        (0.02, "algo.kl.use_loss", True),
        (0.0, "algo.kl.init_coef", 0.0),
        (0.0, "algo.kl.use_loss", False),
    ],
    "run.checkpoint_every": [(5, "ckpt.save_steps", 5), (0, "ckpt.save_steps", 100)],
    "run.keep_checkpoints": [(4, "ckpt.max_num", 4)],
}
"""Field -> (value, where OpenRLHF reads it, what it reads)."""

TOGETHER: list[tuple[list[str], dict[str, Any]]] = [
    (
        ["train.optimizer.name=muon", "train.optimizer.lr=1e-4", "train.optimizer.matrix_lr_scale=20.0"],
        {"actor.muon.lr": 2e-3, "actor.adam.lr": 1e-4, "actor.muon.momentum": 0.95, "actor.max_norm": 0.0},
    ),
    (["train.kl.coef=0.1", "train.kl.kind=k2"], {"algo.kl.estimator": "k2", "algo.kl.use_loss": True}),
    (
        ["train.optimizer.schedule=cosine", "train.optimizer.final_lr_fraction=0.25"],
        {"actor.lr_scheduler": "cosine_with_min_lr", "actor.min_lr_ratio": 0.25},
    ),
    (
        ["train.optimizer.schedule=cosine", "train.optimizer.warmup_steps=3"],
        {"actor.lr_scheduler": "cosine_warmup_with_min_lr", "actor.lr_warmup_ratio": 0.025},
    ),
    (["train.optimizer.warmup_steps=3"], {"actor.lr_scheduler": "constant_with_warmup"}),
    (["algorithm=ppo"], {"algo.advantage.estimator": "gae", "critic.model_name_or_path": "org/model"}),
    (["algorithm=grpo"], {"algo.advantage.estimator": "reinforce", "critic.model_name_or_path": None}),
    (
        ["algorithm={name: reinforce++, options: {kl_coef: 0.1}}"],
        {"algo.kl.init_coef": 1e-8, "algo.kl.use_loss": False, "algo.kl.estimator": "k1"},
    ),
    ([], {"algo.advantage.is_correction_level": "token", "reward.remote_url": ["agent"]}),
    ([], {"train.num_episodes": 1, "ckpt.best_metric_key": "none", "logger.logging_steps": 1, "rollout.top_p": 1.0}),
    ([], {"data.apply_chat_template": False, "data.input_template": None, "ckpt.load_enable": False}),
    (["evaluation.every=5"], {"eval.dataset": None, "ckpt.save_hf": True}),
]
"""Overrides -> what OpenRLHF reads."""

OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"nodes": 2}, {"actor.num_nodes": 2, "actor.num_gpus_per_node": 8, "ref.num_nodes": 2, "vllm.num_engines": 16}),
    ({"gpus_per_node": 4}, {"actor.num_gpus_per_node": 4, "critic.num_gpus_per_node": 4, "vllm.num_engines": 4}),
    ({"colocate": "all"}, {"train.colocate_all": True, "vllm.enable_sleep": True, "ds.enable_sleep": True}),
    (
        {"colocate": "training"},
        {"train.colocate_all": False, "train.colocate_actor_ref": True, "actor.num_gpus_per_node": 4},
    ),
    ({"colocate": "none"}, {"train.colocate_all": False, "train.colocate_actor_ref": False}),
    ({"colocate": "training", "engines": 6}, {"vllm.num_engines": 6, "actor.num_gpus_per_node": 2}),
    ({"tensor_parallel": 4}, {"vllm.tensor_parallel_size": 4, "vllm.num_engines": 2}),
    ({"engine_memory": 0.3}, {"vllm.gpu_memory_utilization": 0.3}),
    ({"colocate": "training"}, {"vllm.gpu_memory_utilization": 0.9, "vllm.enable_sleep": False}),
    ({}, {"vllm.gpu_memory_utilization": 0.6, "vllm.enable_prefix_caching": True}),
    ({"sleep": False}, {"vllm.enable_sleep": False, "ds.enable_sleep": False, "train.colocate_all": True}),
    ({"prefix_caching": False}, {"vllm.enable_prefix_caching": False}),
    ({"async": True}, {"train.async_enable": True, "train.colocate_all": True, "actor.num_gpus_per_node": 4}),
    ({"async": True, "queue": 3}, {"train.async_queue_size": 3, "vllm.enable_sleep": False}),
    (
        {"async": True, "partial_rollout": True},
        {"train.partial_rollout_enable": True, "vllm.enable_prefix_caching": False},
    ),
    ({"zero_stage": 3}, {"ds.zero_stage": 3}),
    ({"offload_optimizer": True}, {"ds.adam_offload": True}),
    ({"offload_reference": True}, {"ref.offload": True}),
    ({"gradient_checkpointing": True}, {"actor.gradient_checkpointing_enable": True}),
    (
        {"packing": True},
        {
            "ds.packing_samples": True,
            "train.dynamic_batch_enable": True,
            "train.max_tokens_per_gpu": 16384,
            "rollout.max_tokens_per_gpu": 16384,
            "ds.attn_implementation": "flash_attention_2",
        },
    ),
    ({"packing": True, "ring_attention": 2}, {"ds.ring_attn_size": 2}),
    ({"train_tensor_parallel": 2}, {"ds.tensor_parallel_size": 2}),
    ({"filter_flat_groups": True}, {"algo.dynamic_filtering_enable": True, "algo.dynamic_filtering_range": [0.0, 1.0]}),
    ({"ema": 0.99}, {"train.enable_ema": True, "train.ema_beta": 0.99}),
]
"""Typed options -> what OpenRLHF reads."""

ELSEWHERE = {
    "model.template", "model.template_options", "model.history", "model.device", "train.steps",
    "train.optimizer.matrix_lr_scale", "train.optimizer.final_lr_fraction", "train.kl.kind", "run.root",
    "run.save_trajectories",
}  # fmt: skip
"""Fields of these sections without a row above: the rollout engine, the run folder or another table has them."""


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def cases() -> Iterator[Any]:
    for field, rows in RECIPE.items():
        for value, where, wanted in rows:
            yield pytest.param([f"{field}={text(value)}"], {}, {where: wanted}, id=f"{field}={value}-{where}")
    for number, (overrides, wanted) in enumerate(TOGETHER):
        yield pytest.param(overrides, {}, wanted, id=f"together-{number}")
    for number, (options, wanted) in enumerate(OPTIONS):
        yield pytest.param([], options, wanted, id=f"{next(iter(options), 'none')}-{number}")


@pytest.mark.parametrize(("overrides", "options", "wanted"), list(cases()))
def test_an_option_arrives(load: Any, overrides: list[str], options: dict[str, Any], wanted: dict[str, Any]) -> None:
    namespace = resolve(load(*overrides, **options)).namespace
    arrived = {where: attrgetter(where)(namespace) for where in wanted}
    assert arrived == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in wanted.items()}


def test_the_critic_is_trained_with_the_same_schedule_and_its_own_rate(load: Any) -> None:
    loaded = load("algorithm=ppo", "train.optimizer.warmup_steps=4", critic_lr=3e-6, critic_warmup_steps=10)
    critic, actor = resolve(loaded).namespace.critic, resolve(loaded).namespace.actor
    assert critic.adam.lr == 3e-6
    assert critic.freezing_steps == 9, "OpenRLHF numbers steps from 0 and trains the policy in those above"
    assert (critic.lr_scheduler, critic.lr_warmup_ratio) == (actor.lr_scheduler, actor.lr_warmup_ratio)
    assert resolve(load("algorithm=ppo")).namespace.critic.freezing_steps == -1


def test_no_field_that_a_trainer_answers_for_is_forgotten() -> None:
    rows = [row for row in describe_schema() if row["type"] not in ("section", "list of sections")]
    fields = {row["key"] for row in rows if row["key"].startswith(("model.", "train.", "run."))}
    assert {f for f in fields - RECIPE.keys() - ELSEWHERE if not f.startswith("run.trackers.")} == set()
    assert RECIPE.keys() - {row["key"] for row in rows} == set()


def test_no_typed_option_is_forgotten() -> None:
    own = set(LearnerOptions.model_fields) - set(LaunchOptions.model_fields)
    named = {"asynchronous" if name == "async" else name for options, _ in OPTIONS for name in options}
    assert own - named == {"critic_lr", "critic_warmup_steps"}


def test_every_setting_is_a_flag_and_arrives_as_it_is(load: Any) -> None:
    flags = installed().flags
    for loaded in (load(), load(packing=True, ema=0.9), load("algorithm=ppo"), load("train.optimizer.name=muon")):
        resolved = resolve(loaded)
        assert len({s.flag for s in resolved.settings}) == len(resolved.settings)
        for setting in resolved.settings:
            arrived = attrgetter(flags[setting.flag].dest)(resolved.namespace)
            wanted = list(setting.value) if isinstance(setting.value, tuple) else setting.value
            assert arrived == wanted, setting
            assert type(arrived) is type(wanted) or isinstance(wanted, int | float), setting


@pytest.mark.parametrize("steps", [1, 3, 7, 100, 999, 12345])
def test_openrlhf_computes_the_warm_up_that_was_asked_for(load: Any, steps: int) -> None:
    for warmup in {0, 1, 2, steps // 3, steps - 1, steps} - {-1}:
        loaded = load(f"train.steps={steps}", f"train.optimizer.warmup_steps={warmup}")
        # openrlhf/utils/deepspeed/deepspeed.py: num_warmup_steps=math.ceil(scheduler_steps * lr_warmup_ratio)
        assert math.ceil(steps * resolve(loaded).namespace.actor.lr_warmup_ratio) == warmup
