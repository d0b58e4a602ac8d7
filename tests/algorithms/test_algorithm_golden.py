"""Golden vectors of tests/golden/algorithms, through the public interface of the algorithms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.corrections import icepop, log_weights, tis  # noqa: E402
from agentfly_core.algorithms.group import GRPO, RLOO, DrGRPO  # noqa: E402
from agentfly_core.algorithms.kl import kl_estimate  # noqa: E402
from agentfly_core.algorithms.ppo import PPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce, ReinforcePlusPlus, ReinforcePlusPlusBaseline  # noqa: E402
from agentfly_core.algorithms.turns import MTPPO  # noqa: E402
from agentfly_core.types import TrainBatch  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "algorithms" / "cases.json"
CASES = {case["id"]: case for case in json.loads(GOLDEN.read_text())["cases"]}


def tensor(rows: Any) -> torch.Tensor:
    return torch.tensor([[float(x) for x in row] for row in rows], dtype=torch.float64)


def close(actual: torch.Tensor, expected: Any, case: dict[str, Any]) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64)
    assert actual.shape == wanted.shape
    torch.testing.assert_close(actual.detach().double(), wanted, rtol=0, atol=case.get("tol", 1e-9))


def batch_of(inputs: dict[str, Any]) -> TrainBatch:
    """Columns of a case are response positions: column t of the batch scores the token after it."""
    rows = inputs.get("rewards") or inputs["mask"]
    mask = torch.tensor(inputs.get("mask") or [[1]] * len(rows), dtype=torch.bool)
    scores = [None if r is None else float(r) for r in inputs.get("rewards", [0.0] * len(rows))]
    turn_rewards = inputs.get("turn_rewards") or [[] for _ in scores]
    turn_ids = torch.tensor(inputs["turn_ids"]) if "turn_ids" in inputs else torch.where(mask, 0, -1)
    if "token_rewards" in inputs:
        turn_ids, turn_rewards = turns_of(mask, inputs["token_rewards"])
    logps = {k: tensor(inputs[v]) for k, v in (("old_logp", "logp_old"), ("ref_logp", "logp_ref")) if v in inputs}
    scored = torch.tensor([s is not None for s in scores])
    return TrainBatch(
        mask=mask & scored.unsqueeze(1),
        chain=torch.arange(len(scores)),
        turn_ids=turn_ids,
        rewards=torch.tensor([float("nan") if s is None else s for s in scores], dtype=torch.float64),
        scored=scored,
        group=torch.tensor(inputs.get("group", [0] * len(scores))),
        turn_rewards=tuple(map(tuple, turn_rewards)),
        values=tensor(inputs["values"]) if "values" in inputs else None,
        **logps,
    )


def turns_of(mask: torch.Tensor, token_rewards: list[list[float]]) -> tuple[torch.Tensor, list[list[float]]]:
    """A turn is a run of sampled tokens; its reward is on its last token."""
    turn_ids, rewards = torch.full(mask.shape, -1), []
    for row, gained in enumerate(token_rewards):
        rewards.append([])
        for t in range(mask.shape[1]):
            if mask[row, t]:
                if t == 0 or not mask[row, t - 1]:
                    rewards[-1].append(0.0)
                turn_ids[row, t] = len(rewards[-1]) - 1
                rewards[-1][-1] += gained[t]
    return turn_ids, rewards


GRPO_CASES = {f"adv_grpo_{k}": GRPO(eps=e, ddof=d) for k, e, d in (
    ("unbiased_eps1e-4", 1e-4, 1), ("unbiased_eps1e-6", 1e-6, 1), ("unbiased_eps1e-9", 1e-9, 1),
    ("population_eps1e-4", 1e-4, 0), ("equal_rewards", 1e-9, 1), ("unscored", 1e-4, 1),
)}  # fmt: skip
ADVANTAGES = {
    **GRPO_CASES,
    "adv_dr_grpo": DrGRPO(),
    "adv_rloo": RLOO(),
    "adv_rloo_uneven_groups": RLOO(),
    "adv_reinforce_gamma1": Reinforce(),
    "adv_reinforce_discount_gaps": MTPPO(gamma=0.9, whitening="none"),
    "adv_rpp_no_kl": ReinforcePlusPlus(),
    "adv_rpp_no_kl_bessel": ReinforcePlusPlus(whitening="bessel"),
    "adv_rpp_kl": ReinforcePlusPlus(kl_coef=0.05),
    "adv_rppb": ReinforcePlusPlusBaseline(),
    "adv_rppb_bessel": ReinforcePlusPlusBaseline(whitening="bessel"),
    "adv_gae_gaps": PPO(gamma=0.99, lam=0.95, whitening="none"),
    "adv_gae_compact": PPO(gamma=0.99, lam=0.95, whitening="none"),
    "adv_gae_whitened": PPO(gamma=0.99, lam=0.95, whitening="bessel"),
    "adv_gae_length1_and_all_masked": PPO(gamma=0.9, lam=0.8, whitening="none"),
    "adv_turn_gae_timestep": PPO(gamma=0.95, lam=0.9, clock="turn", rewards="turn", whitening="none"),
    "adv_turn_gae_two_clock": PPO(gamma=0.95, lam=0.9, clock="two_clock", rewards="turn", whitening="none"),
}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name: str) -> None:
    case = CASES[name]
    batch = batch_of(case["inputs"])
    output = ADVANTAGES[name].advantages(batch)
    if "advantages" in case["expected"]:
        close(output.advantages, case["expected"]["advantages"], case)
    if "sample_advantages" in case["expected"]:
        # the first sampled token of each row carries the chain's number, 0 where the row has none
        close(output.advantages.sum(1) / batch.mask.sum(1).clamp(min=1), case["expected"]["sample_advantages"], case)
    if "returns" in case["expected"] and output.returns is not None:
        close(output.returns, case["expected"]["returns"], case)


def test_reinforce_plus_plus_returns_before_whitening() -> None:
    for name in ("adv_rpp_kl", "adv_rpp_no_kl"):
        case = CASES[name]
        algorithm = ReinforcePlusPlus(kl_coef=case["params"]["kl_coef"], whitening="none")
        close(algorithm.advantages(batch_of(case["inputs"])).advantages, case["expected"]["returns"], case)


WIDE: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2}
LOSSES = {
    "loss_reinforce": Reinforce(),
    "loss_ppo_on_policy": PPO(**WIDE),
    "loss_ppo_quadrants": PPO(**WIDE),
    "loss_clip_higher_quadrants": PPO(clip_low=0.2, clip_high=0.28),
    "loss_dual_clip": PPO(clip_low=0.2, clip_high=0.28, dual_clip=3.0),
    "agg_token_mean": PPO(**WIDE),
    "agg_seq_mean": GRPO(**WIDE),
    "agg_seq_mean_counting_empty": GRPO(**WIDE),
    "agg_constant": PPO(aggregation="constant", constant_length=16, **WIDE),
    "agg_microbatch_token_mean": PPO(**WIDE),
    "agg_all_masked": PPO(**WIDE),
    "corr_tis_in_loss": PPO(correction="tis", correction_high=1.2, **WIDE),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient(name: str) -> None:
    case = CASES[name]
    inputs, expected, params = case["inputs"], case["expected"], case["params"]
    mask = torch.tensor(inputs["mask"], dtype=torch.bool)
    new = tensor(inputs["logp_new"]).requires_grad_()
    old = tensor(inputs["logp_old"]) if "logp_old" in inputs else new.detach()
    rollout = tensor(inputs["logp_rollout"]) if "logp_rollout" in inputs else None
    advantages = tensor(inputs["advantages"])
    counts = {
        "token_count": params.get("n_tokens", int(mask.sum())),
        "nonempty_count": params.get("n_seqs", int(mask.any(1).sum())),
        "chain_count": mask.shape[0],
    }
    losses = []
    for rows in params.get("micro_batches", [list(range(mask.shape[0]))]):
        given = None if rollout is None else rollout[rows]
        output = LOSSES[name].policy_loss(new[rows], old[rows], given, advantages[rows], mask[rows], **counts)
        output.loss.backward()
        losses.append(output.loss)
    close(sum(losses), expected["loss"], case)
    close(new.grad, expected["grad"], case)
    if "micro_losses" in expected:
        close(torch.stack(losses), expected["micro_losses"], case)


@pytest.mark.parametrize("name", ["corr_tis", "corr_icepop", "corr_nonfinite_rollout_logp"])
def test_correction_weights(name: str) -> None:
    case = CASES[name]
    mask = torch.tensor(case["inputs"]["mask"], dtype=torch.bool)
    log_w = log_weights(tensor(case["inputs"]["logp_old"]), tensor(case["inputs"]["logp_rollout"]), mask)
    params = case["params"]
    if params["name"] == "tis":
        weights = tis(log_w, cap=params["c_max"])
    else:
        weights = icepop(log_w, low=params["low"], high=params["high"])
    expected = torch.tensor(case["expected"]["weights"], dtype=torch.float64)
    torch.testing.assert_close(weights[mask], expected[mask], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["kl_k1", "kl_k2", "kl_k3", "kl_k3_importance"])
def test_kl(name: str) -> None:
    case = CASES[name]
    inputs, kind = case["inputs"], case["params"]["name"].removesuffix("_importance")
    mask = torch.tensor(inputs["mask"], dtype=torch.bool)
    new = tensor(inputs["logp_new"]).requires_grad_()
    old = tensor(inputs["logp_old"]) if "importance" in name else None
    kl = kl_estimate(new, tensor(inputs["logp_ref"]), mask, kind, old_logp=old)
    loss = kl.sum() / mask.sum()
    loss.backward()
    close(kl, case["expected"]["kl"], case)
    close(loss, case["expected"]["loss"], case)
    close(new.grad, case["expected"]["grad"], case)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_clamped_kl(kind: str) -> None:
    case = CASES["kl_extreme_clamped"]
    mask = torch.tensor(case["inputs"]["mask"], dtype=torch.bool)
    new = tensor(case["inputs"]["logp_new"]).requires_grad_()
    kl = kl_estimate(new, tensor(case["inputs"]["logp_ref"]), mask, kind, clamp=case["params"]["clamp"])
    kl.sum().backward()
    close(kl, case["expected"][kind], case)
    close(new.grad, case["expected"][f"grad_{kind}"], case)
