"""GPUs are divided as asked, and OpenRLHF asks Ray for no more than there are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from agentfly_learner_openrlhf.flags import check, resolve
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.recipes.checking import check_recipe
from agentfly_core.recipes.load import LoadedRecipe
from agentfly_core.recipes.reading import apply_overrides

ROLES: list[tuple[list[str], dict[str, Any], int, list[tuple[str, int, int, str | None]]]] = [
    ([], {}, 8, [("policy", 8, 8, None), ("engines", 8, 8, "policy")]),
    (
        ["train.kl.coef=0.01"],
        {"tensor_parallel": 4},
        8,
        [("policy", 8, 8, None), ("reference", 8, 8, "policy"), ("engines", 8, 2, "policy")],
    ),
    (
        ["train.kl.coef=0.01"],
        {"async": True, "engines": 4},
        8,
        [("policy", 4, 4, None), ("reference", 4, 4, "policy"), ("engines", 4, 4, None)],
    ),
    (
        ["train.kl.coef=0.01", "algorithm=ppo"],
        {"nodes": 2, "async": True, "engines": 4, "tensor_parallel": 2},
        16,
        [("policy", 8, 8, None), ("reference", 8, 8, "policy"), ("critic", 8, 8, "policy"), ("engines", 8, 4, None)],
    ),
    (
        ["train.kl.coef=0.01", "algorithm=ppo"],
        {"colocate": "training", "engines": 4},
        8,
        [("policy", 2, 2, None), ("reference", 2, 2, "policy"), ("critic", 2, 2, None), ("engines", 4, 4, None)],
    ),
    (
        ["train.kl.coef=0.01", "algorithm=ppo"],
        {"colocate": "none", "engines": 2},
        8,
        [("policy", 2, 2, None), ("reference", 2, 2, None), ("critic", 2, 2, None), ("engines", 2, 2, None)],
    ),
    ([], {"gpus_per_node": 2, "colocate": "training"}, 2, [("policy", 1, 1, None), ("engines", 1, 1, None)]),
    ([], {"gpus_per_node": 1}, 1, [("policy", 1, 1, None), ("engines", 1, 1, "policy")]),
]


@pytest.mark.parametrize(("overrides", "options", "gpus", "roles"), ROLES)
def test_roles(load: Any, overrides: list[str], options: dict[str, Any], gpus: int, roles: list[Any]) -> None:
    placement = resolve(load(*overrides, **options)).placement
    assert [(r.role, r.gpus, r.processes, r.shares) for r in placement.roles] == roles
    assert placement.gpus == gpus


OPTIONS = st.fixed_dictionaries(
    {"nodes": st.integers(1, 3), "gpus_per_node": st.integers(1, 8)},
    optional={
        "colocate": st.sampled_from(["all", "training", "none"]),
        "engines": st.integers(1, 12),
        "tensor_parallel": st.sampled_from([1, 2, 4]),
        "async": st.booleans(),
        "partial_rollout": st.booleans(),
        "sleep": st.booleans(),
        "packing": st.booleans(),
        "ring_attention": st.sampled_from([1, 2]),
        "train_tensor_parallel": st.sampled_from([1, 2]),
        "zero_stage": st.sampled_from([1, 2, 3]),
    },
)
TRAIN = st.fixed_dictionaries(
    {
        "train.tasks_per_step": st.sampled_from([1, 3, 8, 12, 24, 48]),
        "train.chains_per_task": st.sampled_from([2, 4, 6, 8]),
        "train.minibatches": st.integers(1, 4),
        "train.micro_batch_tokens": st.sampled_from([1, 4096, 9000, 10**6]),
        "train.kl.coef": st.sampled_from([0.0, 0.01]),
    }
)


@pytest.fixture(scope="module")
def vary(load: Any) -> Callable[..., LoadedRecipe]:
    """A recipe with other numbers, its names resolved once for all."""
    bases = {algorithm: load(f"algorithm={algorithm}") for algorithm in ("grpo", "ppo")}

    def vary(algorithm: str, options: dict[str, Any], train: dict[str, Any]) -> LoadedRecipe:
        varied = copy.copy(bases[algorithm])
        data = varied.recipe.model_dump(mode="json")
        apply_overrides(data, [f"{key}={value}" for key, value in train.items()])
        data["learner"]["options"] = options
        varied.recipe = check_recipe(data)
        return varied

    return vary


@settings(max_examples=150, deadline=None)
@given(algorithm=st.sampled_from(["grpo", "ppo"]), options=OPTIONS, train=TRAIN)
def test_any_recipe_is_refused_or_fits(
    vary: Callable[..., LoadedRecipe], algorithm: str, options: dict[str, Any], train: dict[str, Any]
) -> None:
    loaded = vary(algorithm, options, train)
    if check(loaded):  # and not an error of OpenRLHF's checks, which would be raised here
        return
    resolved = resolve(loaded)
    args, placement = resolved.namespace, resolved.placement
    assert placement.gpus <= options["nodes"] * options["gpus_per_node"]
    ranks = args.actor.num_nodes * args.actor.num_gpus_per_node
    data_parallel = ranks // args.ds.ring_attn_size // args.ds.tensor_parallel_size
    assert data_parallel * args.ds.ring_attn_size * args.ds.tensor_parallel_size == ranks
    chains = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    assert chains == train["train.tasks_per_step"] * train["train.chains_per_task"]
    assert args.train.batch_size * train["train.minibatches"] == chains
    # What every rank and every micro-batch gets is equal; DeepSpeed and OpenRLHF fail or hang otherwise.
    assert args.train.batch_size % (args.train.micro_batch_size * data_parallel) == 0
    assert chains % (args.rollout.micro_batch_size * data_parallel) == 0
    if not args.train.dynamic_batch_enable:
        fits = args.train.micro_batch_size * args.data.max_len <= train["train.micro_batch_tokens"]
        assert fits or args.train.micro_batch_size == 1
    again = resolve(loaded)
    assert (again.argv, again.namespace, again.plain()) == (resolved.argv, resolved.namespace, resolved.plain())
