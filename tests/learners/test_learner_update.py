"""Forward pass, optimizer and update: gradients against independent computations."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

from agentfly_core.algorithms.group import GRPO  # noqa: E402
from agentfly_core.algorithms.reinforce import ReinforcePlusPlus  # noqa: E402
from agentfly_core.learners.collate import Collated, collate  # noqa: E402
from agentfly_core.learners.muon import Muon, orthogonalise  # noqa: E402
from agentfly_core.learners.optim import ScheduledOptimizer, lr_factor  # noqa: E402
from agentfly_core.learners.policy import Policy  # noqa: E402
from agentfly_core.learners.update import Updater, UpdateSettings  # noqa: E402
from agentfly_core.recipes.schema import OptimizerSection  # noqa: E402
from agentfly_core.types import (  # noqa: E402
    AssistantTurn,
    ChainStatus,
    LossOutput,
    Segment,
    Task,
    Trajectory,
    Turn,
    TurnSpan,
    UsageError,
)


class Recording(ScheduledOptimizer):
    """Keeps the gradients of every step (clipped at a norm no test reaches) and the positions."""

    def __init__(self, model: Any, **section: Any) -> None:
        section = {"lr": 1e-2, "max_grad_norm": 1e9, **section}
        super().__init__(model, OptimizerSection(**section), 10)
        self.model = model
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.positions: list[int] = []

    def step(self, position: int) -> float:
        self.positions.append(position)
        self.gradients.append({n: p.grad.clone() for n, p in self.model.named_parameters()})
        return super().step(position)


def test_a_step_that_destroys_the_weights_is_an_error() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = ScheduledOptimizer(model, OptimizerSection(lr=1e300), 10)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(UsageError, match=r"not finite after an optimizer step with a learning rate of 1e[+]300"):
        optimizer.step(0)


def chains_of(policy: Policy, rewards: list[list[float | None]], *, segments: int = 1) -> list[Trajectory]:
    """Random chains of one or more segments, with the policy's own logprobs. One list of rewards a group."""
    g = torch.Generator().manual_seed(7)
    made = []
    for group, scores in enumerate(rewards):
        for i, score in enumerate(scores):
            parts = []
            for k in range(segments):
                n = int(torch.randint(4, 14, (1,), generator=g))
                ids = torch.randint(0, 256, (1, n), generator=g)
                mask = torch.zeros(1, n - 1, dtype=torch.bool)
                mask[0, n // 2 :] = True
                with torch.no_grad():
                    logp, _ = policy.logprobs(ids, mask)
                parts.append(
                    Segment(
                        tuple(ids[0].tolist()),
                        (0, *mask[0].int().tolist()),
                        (0.0, *logp[0].tolist()),
                        n // 2 + 1,
                        (TurnSpan(k, n // 2 + 1, n),),
                    )
                )
            turns = tuple(Turn(k, k, (), "stop", AssistantTurn("")) for k in range(segments))
            made.append(
                Trajectory(
                    Task(str(group)),
                    i,
                    str(group),
                    "train",
                    ChainStatus.COMPLETED,
                    tuple(parts),
                    turns,
                    reward=score or 0.0,
                    scored=score is not None,
                )
            )
    return made


REWARDS: list[list[float | None]] = [[1.0, 0.0, 0.5], [0.0, 1.0, None], [0.1, 0.1, 0.1]]


def setting(
    make_model: Any,
    rewards: Any = REWARDS,
    *,
    algorithm: Any = None,
    reference: Any = None,
    segments: int = 1,
    **more: Any,
) -> tuple[Updater, Recording, Collated]:
    policy = Policy(make_model(), temperature=0.7)
    data = collate(chains_of(policy, rewards, segments=segments))
    optimizer = Recording(policy.model)
    settings = UpdateSettings(**{"micro_batch_tokens": 10_000, **more})
    return Updater(policy, algorithm or GRPO(), optimizer, settings, reference), optimizer, data


def full_logp(policy: Policy, data: Collated) -> torch.Tensor:
    """Logprobs by the plain forward pass: every position, attention mask, log_softmax."""
    columns = torch.arange(data.token_ids.shape[1])
    attention = (columns < data.lengths.unsqueeze(1)).long()
    logits = policy.model(input_ids=data.token_ids, attention_mask=attention).logits[:, :-1] / policy.temperature
    return logits.log_softmax(-1).gather(-1, data.token_ids[:, 1:, None]).squeeze(-1)


def test_logprobs_and_entropy_equal_the_plain_forward(make_model: Any) -> None:
    updater, _, data = setting(make_model)
    mask = data.batch.mask
    logp, entropy = updater.policy.logprobs(data.token_ids, mask)
    torch.testing.assert_close(logp, torch.where(mask, full_logp(updater.policy, data), 0.0), atol=1e-5, rtol=0)
    logits = updater.policy.model(input_ids=data.token_ids).logits[:, :-1] / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(entropy, torch.where(mask, expected, 0.0), atol=1e-4, rtol=0)
    inferred, _ = updater.policy.infer(data, data.rows_of_chains(), 20)
    torch.testing.assert_close(inferred, logp, atol=1e-5, rtol=0)


def test_the_model_is_as_before_after_a_forward(make_model: Any) -> None:
    policy = Policy(make_model())
    ids = torch.randint(0, 256, (2, 6))
    before = policy.model(input_ids=ids).logits
    with pytest.raises(IndexError):  # id 999 is outside the vocabulary
        policy.logprobs(torch.full((2, 6), 999), torch.ones(2, 5, dtype=torch.bool))
    assert torch.equal(policy.model(input_ids=ids).logits, before)


def test_gradient_is_that_of_the_formula(make_model: Any) -> None:
    updater, optimizer, data = setting(make_model, algorithm=GRPO(aggregation="token_mean"))
    metrics = updater.update(data, 1)
    model = make_model()
    policy = Policy(model, temperature=0.7)
    advantages = updater.algorithm.advantages(data.batch).advantages
    mask = data.batch.mask
    # on-policy: the gradient of the clipped loss is -A grad log pi / sampled tokens of scored chains
    loss = -(torch.where(mask, advantages * full_logp(policy, data), 0.0)).sum() / mask.sum()
    loss.backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(optimizer.gradients[0][name], p.grad.float(), atol=1e-5, rtol=1e-4)
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
    assert metrics["optim/grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["logp/max_abs_diff"] < 1e-5
    assert metrics["logp/ess"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["optim/steps"] == 1
    assert optimizer.positions == [0]


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_micro_batches_do_not_change_the_gradient(make_model: Any, aggregation: Any, segments: int) -> None:
    gradients = []
    reference = Policy(make_model(seed=3)).frozen()
    for budget in (1, 40, 10_000):
        updater, optimizer, data = setting(
            make_model, algorithm=GRPO(aggregation=aggregation), reference=reference, segments=segments,
            micro_batch_tokens=budget, kl_coef=0.05, kl_kind="k2",
        )  # fmt: skip
        updater.update(data, 1)
        gradients.append(optimizer.gradients[0])
    scale = max(float(g.abs().max()) for g in gradients[0].values())
    assert scale > 1e-3
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-6 * max(1.0, scale), rtol=0)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_gradient(make_model: Any, kind: Any) -> None:
    flat = [[0.5, 0.5]]  # no advantage: the penalty alone moves the weights
    reference = Policy(make_model(seed=1), temperature=0.7).frozen()
    updater, optimizer, data = setting(make_model, flat, reference=reference, kl_coef=0.3, kl_kind=kind)
    metrics = updater.update(data, 1)
    model = make_model()
    d = full_logp(Policy(model, temperature=0.7), data) - full_logp(reference, data).detach()
    value = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[kind]
    mask = data.batch.mask
    loss = 0.3 * torch.where(mask, value, 0.0).sum() / mask.sum()
    loss.backward()
    for name, p in model.named_parameters():
        expected = p.grad.float()
        tolerance = 1e-5 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(optimizer.gradients[0][name], expected, atol=tolerance, rtol=0)
    assert metrics["loss/kl"] == pytest.approx(loss.item(), rel=1e-3)
    assert metrics["kl/ref"] > 0


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items()}


def same_weights(model: Any, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("rewards", [[[0.1, 0.1, 0.1], [1.0, 1.0]], [[None, None], [None]], [[1.0]]])
def test_nothing_to_learn_takes_no_step(make_model: Any, rewards: Any) -> None:
    updater, optimizer, data = setting(make_model, rewards)
    before = weights_of(updater.policy.model)
    metrics = updater.update(data, 1)
    assert (metrics["optim/idle"], metrics["optim/steps"], metrics["optim/skipped"]) == (1.0, 0.0, 0.0)
    assert optimizer.positions == []
    assert same_weights(updater.policy.model, before)
    assert ("logp/max_abs_diff" in metrics) == any(r is not None for group in rewards for r in group)


def test_no_chains_at_all(make_model: Any) -> None:
    updater, _, _ = setting(make_model)
    assert updater.update(collate([]), 1)["optim/idle"] == 1.0


@dataclasses.dataclass(frozen=True)
class Poisoned(GRPO):
    """The loss of one micro-batch is not finite; its gradient may be."""

    value: float = math.nan

    def policy_loss(self, *args: Any, **kwargs: Any) -> LossOutput:
        output = super().policy_loss(*args, **kwargs)
        return LossOutput(output.loss + self.value, output.metrics)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_skips_the_step(make_model: Any, value: float) -> None:
    updater, optimizer, data = setting(make_model, algorithm=Poisoned(value=value))
    before = weights_of(updater.policy.model)
    metrics = updater.update(data, 1)
    assert (metrics["optim/skipped"], metrics["optim/steps"]) == (1.0, 0.0)
    assert "loss/policy" not in metrics
    assert same_weights(updater.policy.model, before)
    assert not optimizer.state_dict()["optimizers"][0]["state"]
    assert all(p.grad is None for p in updater.policy.model.parameters())


def test_a_gradient_that_is_not_finite_skips_the_step(make_model: Any) -> None:
    updater, _, data = setting(make_model)
    parameter = next(updater.policy.model.parameters())
    hook = parameter.register_hook(lambda g: g * math.inf)
    before = weights_of(updater.policy.model)
    assert updater.update(data, 1)["optim/skipped"] == 1.0
    assert same_weights(updater.policy.model, before)
    hook.remove()
    assert updater.update(data, 2)["optim/steps"] == 1.0
    assert not same_weights(updater.policy.model, before)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_engine_logprob_that_is_not_finite_is_counted_and_has_ratio_one(make_model: Any, bad: float) -> None:
    gradients = []
    for value in (None, bad):
        updater, optimizer, data = setting(make_model, algorithm=GRPO(correction="tis"))
        assert data.batch.rollout_logp is not None
        row, column = data.batch.mask.nonzero()[0].tolist()
        if value is not None:
            data.batch.rollout_logp[row, column] = value
        metrics = updater.update(data, 1)
        gradients.append(optimizer.gradients[0])
        assert metrics["logp/nonfinite"] == float(value is not None)
        assert metrics["logp/max_abs_diff"] < 1e-5
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-6, rtol=0)


def test_several_steps_a_batch_split_whole_groups(make_model: Any) -> None:
    rewards = [[1.0, 0.0]] * 4
    seen: list[dict[str, Any]] = []

    class Spy(GRPO):
        def policy_loss(self, logp: Any, old_logp: Any, *args: Any, chain: Any, **counts: Any) -> LossOutput:
            ratio = torch.where(args[2], logp.detach() - old_logp, 0.0).abs().max().item()
            seen.append({"chains": set(chain.tolist()), "ratio": ratio, **counts})
            return super().policy_loss(logp, old_logp, *args, chain=chain, **counts)

    updater, optimizer, data = setting(make_model, rewards, algorithm=Spy(), epochs=2, minibatches=2)
    metrics = updater.update(data, 3)
    assert metrics["optim/steps"] == 4
    assert optimizer.positions == [8, 9, 10, 11]
    for epoch in (seen[:2], seen[2:]):
        assert epoch[0]["chains"] | epoch[1]["chains"] == set(range(8))
        assert not epoch[0]["chains"] & epoch[1]["chains"]
    for part in seen:
        assert all((c ^ 1) in part["chains"] for c in part["chains"])  # chains 2g and 2g+1 are a group
        assert part["chain_count"] == part["nonempty_count"] == 4
        rows = [c for c in range(8) if c in part["chains"]]
        assert part["token_count"] == int(data.batch.mask[rows].sum())
    assert seen[0]["ratio"] < 1e-5
    assert seen[1]["ratio"] > 1e-4  # old logprobs are those before the first step
    assert metrics["logp/max_abs_diff"] < 1e-5


def test_algorithms_get_what_they_need_before_the_update(make_model: Any) -> None:
    reference = Policy(make_model(seed=1), temperature=0.7).frozen()
    updater, _, data = setting(make_model, algorithm=ReinforcePlusPlus(kl_coef=0.1), reference=reference)
    metrics = updater.update(data, 1)
    mask = data.batch.mask
    assert data.batch.old_logp is not None
    assert data.batch.ref_logp is not None
    expected = torch.where(mask, full_logp(reference, data), 0.0)
    torch.testing.assert_close(data.batch.ref_logp, expected, atol=1e-4, rtol=0)
    assert metrics["loss/kl"] == 0.0
    assert metrics["kl/ref"] > 0


def test_recomputing_old_logprobs_changes_nothing_on_policy(make_model: Any) -> None:
    gradients = []
    for recompute in (False, True):
        updater, optimizer, data = setting(make_model, recompute_old_logp=recompute)
        updater.update(data, 1)
        gradients.append(optimizer.gradients[0])
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-6, rtol=0)


def test_schedules_by_hand() -> None:
    def factors(**section: Any) -> list[float]:
        return [lr_factor(OptimizerSection(**section), p, 6) for p in range(6)]

    assert factors() == [1.0] * 6
    assert factors(warmup_steps=2) == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    linear = factors(warmup_steps=2, schedule="linear", final_lr_fraction=0.2)
    assert linear == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4])
    assert factors(schedule="cosine")[3] == pytest.approx(0.5)
    assert lr_factor(OptimizerSection(schedule="linear"), 99, 6) == 0.0


def test_muon_takes_hidden_matrices_only(make_model: Any) -> None:
    model = make_model()
    optimizer = Recording(model, name="muon", weight_decay=0.1, lr=1e-3, matrix_lr_scale=5.0)
    muon, adamw = optimizer._optimizers
    names = {id(p): n for n, p in model.named_parameters()}
    assert {names[id(p)] for g in muon.param_groups for p in g["params"]} == {
        n for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n
    }
    assert [g["weight_decay"] for g in adamw.param_groups] == [0.1, 0.0]
    assert muon.param_groups[0]["lr"] == pytest.approx(5e-3)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = weights_of(model)
    optimizer.step(0)
    assert not any(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_clipping_scales_the_gradient_to_the_norm(make_model: Any) -> None:
    model = make_model()
    optimizer = ScheduledOptimizer(model, OptimizerSection(max_grad_norm=0.5), 1)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    count = sum(p.numel() for p in model.parameters())
    assert optimizer.clip_gradients() == pytest.approx(math.sqrt(count))
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
    assert norm == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("shape", [(16, 16), (24, 8), (8, 24)])
def test_muon_updates_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    update = orthogonalise(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    singular = torch.linalg.svdvals(update)
    assert float(singular.min()) > 0.6
    assert float(singular.max()) < 1.3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("shape", [(16, 16), (24, 8), (8, 24)])
def test_muon_is_that_of_torch_but_for_rounding(shape: tuple[int, int]) -> None:
    g = torch.Generator().manual_seed(1)
    start = torch.randn(shape, generator=g)
    mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizers = (
        Muon([mine], lr=0.1, weight_decay=0.1),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, momentum=0.95, adjust_lr_fn="original"),
    )
    for _ in range(4):
        gradient = torch.randn(shape, generator=g)
        for parameter, optimizer in zip((mine, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(mine, theirs, atol=5e-3, rtol=0)
    assert (mine - start).abs().max() > 0.05
