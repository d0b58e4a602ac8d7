"""What OpenRLHF cannot do is refused before anything starts: the field, the reason, a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentfly_learner_openrlhf.flags import RunPaths, check, resolve

from agentfly_core.types import UsageError

SPLIT = "cannot be divided equally among 8 data-parallel GPUs"

FIELDS: list[tuple[list[str], str, str]] = [
    (["model.history=template"], "model.history", "use append"),
    (["model.device=cpu"], "model.device", "use auto"),
    (["model.device=cuda:1"], "model.device", "use auto"),
    (["model.dtype=float16"], "model.dtype", "use bfloat16"),
    (["rollout.backend=scripted"], "rollout.backend", "leave it out"),
    (["rollout.temperature=0.0"], "rollout.temperature", "use 1.0"),
    (["deterministic=true"], "deterministic", "set false"),
    (["seed=2147483648"], "seed", "use a smaller one"),
    (
        ["train.optimizer.schedule=linear", "train.optimizer.final_lr_fraction=0.1"],
        "train.optimizer.final_lr_fraction",
        "schedule: cosine",
    ),
    (["data.eval=null"], "data.eval", "turn evaluation.before and evaluation.after off"),
    (
        ["train.tasks_per_step=9", "train.chains_per_task=4"],
        "train.tasks_per_step",
        "and 1 minibatches; use 10 tasks",
    ),
    (["train.minibatches=3"], "train.tasks_per_step", f"{SPLIT} and 3 minibatches; use 9 tasks"),
    (["train.tasks_per_step=1", "train.chains_per_task=3"], "train.tasks_per_step", "use 8 tasks"),
]

OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"partial_rollout": True}, "partial_rollout", "only with async: true"),
    ({"async": True, "partial_rollout": True, "prefix_caching": True}, "prefix_caching", "leave it out"),
    ({"queue": 2}, "queue", "only with async: true"),
    ({"async": True, "colocate": "all"}, "colocate", "use colocate: training"),
    ({"engines": 3}, "engines", "makes 8 of 1, not 3"),
    ({"colocate": "training", "engines": 8}, "engines", "leave 0 for policy"),
    ({"colocate": "none", "engines": 9}, "engines", "leave 0 for policy"),
    ({"tensor_parallel": 3}, "tensor_parallel", "use a divisor"),
    ({"tensor_parallel": 16}, "tensor_parallel", "use a divisor"),
    ({"ring_attention": 2}, "ring_attention", "set packing: true"),
    ({"ring_attention": 3, "packing": True}, "ring_attention", "do not divide the 8 GPUs that train"),
    ({"zero_stage": 3, "train_tensor_parallel": 2}, "train_tensor_parallel", "up to zero_stage 2"),
    ({"data.max_images_per_prompt": 2}, "data.max_images_per_prompt", "train on text"),
    ({"critic_lr": 1e-5}, "critic_lr", "grpo has no critic"),
    ({"critic_warmup_steps": 3}, "critic_warmup_steps", "grpo has no critic"),
    ({"ds.lora.rank": 8}, "ds.lora.rank", "LoRA does not work in OpenRLHF 0.11.2"),
    ({"ds": {"lora": {"rank": 8}}}, "ds.lora.rank", "LoRA does not work in OpenRLHF 0.11.2"),
    ({"ds.load_in_4bit": True}, "ds.load_in_4bit", "LoRA does not work"),
    ({"ds.zero_stge": 3}, "ds.zero_stge", "did you mean 'ds.zero_stage'"),
    ({"vllm": {"enforce_eagerly": True}}, "vllm.enforce_eagerly", "did you mean 'vllm.enforce_eager'"),
    ({"ds.zero_stage": 3}, "ds.zero_stage", "set learner.options.zero_stage; leave the flag out"),
    ({"actor.adam.lr": 1e-5}, "actor.adam.lr", "set train.optimizer.lr; leave the flag out"),
    ({"rollout.batch_size": 8}, "rollout.batch_size", "set train.tasks_per_step"),
    ({"train.agent_func_path": "mine.py"}, "train.agent_func_path", "AgentFly needs it as it is"),
    ({"eval.steps": 5}, "eval.steps", "use evaluation.every"),
    ({"data.apply_chat_template": True}, "data.apply_chat_template", "the recipe's own template"),
    ({"reward.remote_url": "http://rm"}, "reward.remote_url", "write a @reward"),
    ({"actor.dual_clip": 3.0}, "actor.dual_clip", "does nothing, as advantages and loss are AgentFly's"),
    ({"algo.advantage.gamma": 0.9}, "algo.advantage.gamma", "use algorithm.options"),
    ({"vllm.enforce_eager": "yes"}, "vllm.enforce_eager", "true or false, not 'yes'"),
    ({"actor.muon.nesterov": False}, "actor.muon.nesterov", "switched off by actor.muon.no_nesterov: true"),
    ({"ds.zpg": True}, "ds.zpg", "takes a value"),
    ({"ds.zpg": None}, "ds.zpg", "has no value"),
    ({"algo.advantage.estimator": None}, "algo.advantage.estimator", "has no value"),
    ({"algo.advantage.estimator": ["gae"]}, "algo.advantage.estimator", "takes one value, not a list"),
    ({"ds.lora.target_modules": ["--ds.zero_stage=3"]}, "ds.lora.target_modules", "would be another flag"),
    ({"eval.temperature": 0.7}, "eval.temperature", "evaluation is AgentFly's own"),
    ({"eval.n_samples_per_prompt": 4}, "eval.n_samples_per_prompt", "use evaluation.chains_per_task"),
    ({"critic.value_clip": 0.1}, "critic.value_clip", "does nothing, as no critic is trained"),
    ({"critic": {"adam": {"eps": 1e-9}}}, "critic.adam.eps", "does nothing, as no critic is trained"),
    ({"reward.normalize_enable": True}, "reward.normalize_enable", "does nothing, as no critic is trained"),
    ({"train_tensor_parallel": 3}, "train_tensor_parallel", "do not divide the 8 GPUs that train"),
]


@pytest.mark.parametrize(("overrides", "field", "way_out"), FIELDS)
def test_a_field_is_refused(load: Any, overrides: list[str], field: str, way_out: str) -> None:
    reasons = check(load(*overrides))
    assert [reason.split(":")[0] for reason in reasons] == [field]
    assert way_out in reasons[0]


@pytest.mark.parametrize(("options", "option", "way_out"), OPTIONS)
def test_an_option_is_refused(load: Any, options: dict[str, Any], option: str, way_out: str) -> None:
    reasons = check(load(**options))
    assert [reason.split(":")[0] for reason in reasons] == [f"learner.options.{option}"]
    assert way_out in reasons[0]


def test_everything_that_is_wrong_is_said_at_once(load: Any) -> None:
    reasons = check(load("model.history=template", "seed=4294967296", **{"ds.lora.rank": 8, "ring_attention": 2}))
    assert [r.split(":")[0] for r in reasons] == [
        "model.history",
        "seed",
        "learner.options.ring_attention",
        "learner.options.ds.lora.rank",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_stagge": 3}, "unknown option of the learner 'openrlhf' 'zero_stagge'; did you mean 'zero_stage'"),
        ({"colour": 3}, "OpenRLHF's own flags are dotted"),
        ({"zero_stage": "3"}, "learner.options.zero_stage: must be 1, 2 or 3, got '3'"),
        ({"submit": "localhost:8265"}, "learner.options.submit: must be the address of a dashboard, such as http://"),
        ({"nodes": 0}, "learner.options.nodes: must be greater than or equal to 1, got 0"),
        ({"async": 1}, "learner.options.async: must be a valid boolean, got 1"),
        ({"asynchronous": True}, "unknown option"),
        ({"engine_memory": 1.5}, "learner.options.engine_memory: must be less than or equal to 1"),
        ({"lora_rank": 8}, "learner.options.lora_rank: LoRA does not work in OpenRLHF 0.11.2"),
        ({"share_prompts": True}, "an option of the learner 'local'; leave it out"),
        ({"ds.zpg": "two"}, "OpenRLHF refuses a flag: argument --ds.zpg: invalid int value: 'two'"),
        ({"rollout.vllm_generate_batch_size": 999}, "OpenRLHF 0.11.2 refuses these options: .*requires --train.async"),
    ],
)
def test_a_wrong_option_is_one_error(load: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(load(**options))


def test_flags_that_nothing_else_decides_are_passed_on(load: Any) -> None:
    resolved = resolve(load(**{"ds.zpg": 8, "vllm": {"enforce_eager": True, "sync_backend": "gloo"}}))
    assert resolved.namespace.ds.zpg == 8
    assert (resolved.namespace.vllm.enforce_eager, resolved.namespace.vllm.sync_backend) == (True, "gloo")
    assert [s.source for s in resolved.settings if s.flag == "ds.zpg"] == ["learner.options"]


def test_openrlhfs_own_algorithm_is_asked_for_by_its_estimator(load: Any) -> None:
    own = {"algo.advantage.estimator": "rloo", "actor.policy_loss_type": "gspo", "algo.kl.init_coef": 0.05}
    resolved = resolve(load(**own))
    assert resolved.own_algorithm
    assert not resolve(load()).own_algorithm
    namespace = resolved.namespace
    assert namespace.algo.advantage.estimator == "rloo"
    assert (namespace.actor.policy_loss_type, namespace.algo.kl.init_coef) == ("gspo", 0.05)
    assert [role.role for role in resolved.placement.roles] == ["policy", "reference", "engines"]
    assert resolve(load(**{"algo.advantage.estimator": "gae"})).namespace.critic.model_name_or_path == "org/model"
    with pytest.raises(UsageError, match="requires n_samples_per_prompt > 1"):
        resolve(load("train.chains_per_task=1", **{"algo.advantage.estimator": "rloo"}))


def test_the_length_limit_is_the_models_if_the_recipe_has_none(load: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    unlimited = "rollout.max_tokens=null"
    assert resolve(load(unlimited, f"model.path={tmp_path}")).namespace.data.max_len == 2048
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 512}}))
    assert resolve(load(unlimited, f"model.path={tmp_path}")).namespace.data.max_len == 512
    (tmp_path / "config.json").write_text("[]")
    for path in (str(tmp_path), "org/model"):
        with pytest.raises(UsageError, match=r"rollout\.max_tokens: OpenRLHF needs a length limit"):
            resolve(load(unlimited, f"model.path={path}"))


@pytest.mark.parametrize("folder", ["/data/a,b", "/data/me@host"])
def test_a_run_folder_that_openrlhf_would_split_is_refused(folder: str) -> None:
    with pytest.raises(UsageError, match=r"run\.root"):
        RunPaths.inside(folder)


def test_what_is_done_otherwise_is_said(load: Any) -> None:
    def fields(*overrides: str) -> list[str]:
        return [note.split(":")[0] for note in resolve(load("model.dtype=bfloat16", *overrides)).notes]

    assert fields() == []
    assert fields("model.dtype=float32") == ["model.dtype"]
    assert fields("train.optimizer.warmup_steps=3") == ["train.optimizer.warmup_steps"]
    assert fields("train.optimizer.warmup_steps=3", "train.optimizer.schedule=cosine") == []
    assert fields("train.optimizer.name=muon", "train.optimizer.weight_decay=0.1") == [
        "train.optimizer.max_grad_norm",
        "train.optimizer.weight_decay",
    ]
    assert fields("rollout.backend={name: hf, options: {device: cpu}}") == ["rollout.backend.options"]


def test_a_warning_about_what_was_asked_for_is_not_passed_on(load: Any) -> None:
    assert resolve(load("model.dtype=bfloat16", **{"async": True})).notes == []
    noted = resolve(load("model.dtype=bfloat16", "train.kl.coef=0.1", "train.kl.kind=k1")).notes
    assert noted == ["OpenRLHF: Recommend setting k1 to 'k2' or 'k3' when using KL as a loss"]
