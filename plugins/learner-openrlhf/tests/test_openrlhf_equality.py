"""The same chains through what is put into OpenRLHF and through the local learner: advantages, loss, gradient."""

from __future__ import annotations

import copy
import importlib.util
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentfly_learner_openrlhf.rollout.samples import to_sample  # noqa: E402
from agentfly_learner_openrlhf.trainer import counts  # noqa: E402
from agentfly_learner_openrlhf.trainer.advantages import collect, put_advantages  # noqa: E402
from agentfly_learner_openrlhf.trainer.loss import AlgorithmLoss  # noqa: E402
from agentfly_learner_openrlhf.trainer.samples import fill_up  # noqa: E402

from agentfly_core.algorithms.group import GRPO, RLOO, DrGRPO  # noqa: E402
from agentfly_core.algorithms.ppo import PPO  # noqa: E402
from agentfly_core.algorithms.reinforce import Reinforce, ReinforcePlusPlus, ReinforcePlusPlusBaseline  # noqa: E402
from agentfly_core.algorithms.turns import MTPPO  # noqa: E402
from agentfly_core.learners.collate import Collated, collate  # noqa: E402
from agentfly_core.learners.policy import Policy  # noqa: E402
from agentfly_core.learners.update import Updater, UpdateSettings  # noqa: E402
from agentfly_core.types import (  # noqa: E402
    AdvantageOutput,
    Algorithm,
    AssistantTurn,
    ChainStatus,
    Needs,
    Segment,
    Task,
    TrainBatch,
    Trajectory,
    Turn,
    TurnSpan,
)

pytestmark = pytest.mark.torch

VOCABULARY = 64


class Signed(GRPO):
    """An algorithm as a plugin would bring it: only the sign of the reward counts."""

    name = "signed"

    @property
    def needs(self) -> Needs:
        return Needs()

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        sign = torch.where(batch.scored, batch.rewards - 0.5, 0.0).sign()
        return AdvantageOutput(torch.where(batch.mask, sign[batch.chain].unsqueeze(1), 0.0))


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": GRPO(),
    "grpo, token mean, tis": GRPO(aggregation="token_mean", clip_high=0.28, correction="tis"),
    "dr_grpo, constant": DrGRPO(aggregation="constant", constant_length=12),
    "rloo, icepop": RLOO(correction="icepop"),
    "reinforce": Reinforce(),
    "reinforce++": ReinforcePlusPlus(),
    "reinforce++-baseline": ReinforcePlusPlusBaseline(),
    "mt-ppo": MTPPO(baseline="group"),
    "ppo": PPO(lam=0.9),
    "ppo, turns": PPO(clock="turn", rewards="turn"),
    "plugin": Signed(),
}


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    return Qwen2ForCausalLM(config).float().eval()


@pytest.fixture(scope="module")
def chains() -> list[Trajectory]:
    """Four groups of four; one chain is unscored, one was given no turn, rewards and lengths differ."""
    rng = random.Random(3)
    made = [_chain(rng, f"g{group}", index) for group in range(4) for index in range(4)]
    made[2] = _chain(rng, "g0", 2, scored=False)
    made[9] = Trajectory(Task("g2"), 1, "g2", "train", ChainStatus.MAX_TOKENS)
    return made


def _chain(rng: random.Random, group: str, index: int, *, scored: bool = True) -> Trajectory:
    ids, mask, logprobs, spans = [rng.randrange(VOCABULARY) for _ in range(rng.randint(3, 6))], [], [], []
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    prompt = len(ids)
    for turn in range(rng.randint(1, 3)):
        if turn:
            seen = rng.randint(1, 4)
            ids += [rng.randrange(VOCABULARY) for _ in range(seen)]
            mask, logprobs = mask + [0] * seen, logprobs + [0.0] * seen
        said = rng.randint(1, 5)
        spans.append(TurnSpan(turn, len(ids), len(ids) + said))
        ids += [rng.randrange(VOCABULARY) for _ in range(said)]
        mask, logprobs = mask + [1] * said, logprobs + [-rng.uniform(3, 5) for _ in range(said)]
    turns = tuple(Turn(n, 0, tuple(ids[s.start : s.end]), "stop", AssistantTurn("")) for n, s in enumerate(spans))
    rewards = tuple(round(rng.uniform(0, 1), 3) for _ in turns)
    return Trajectory(
        Task(group),
        index,
        group,
        "train",
        ChainStatus.COMPLETED if scored else ChainStatus.TIMEOUT,
        segments=(Segment(tuple(ids), tuple(mask), tuple(logprobs), prompt, tuple(spans)),),
        turns=turns,
        reward=sum(rewards) if scored else 0.0,
        scored=scored,
        turn_rewards=rewards if scored else (0.0,) * len(turns),
    )


@dataclass
class Gradients:
    """Stands where the local learner has its optimizer, and keeps what that would be given."""

    model: Any
    kept: dict[str, Any] = field(default_factory=dict)

    def zero_grad(self) -> None:
        self.model.zero_grad()

    def clip_gradients(self) -> float:
        return 0.0

    def step(self, position: int) -> float:
        self.kept = _gradient(self.model)
        return 0.0


def _gradient(model: Any) -> dict[str, Any]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _values(data: Collated) -> Any:
    """What a critic might say."""
    return torch.sin(torch.arange(data.batch.mask.numel(), dtype=torch.float32)).reshape(data.batch.mask.shape) / 3


def _local(model: Any, chains: list[Trajectory], algorithm: Algorithm, old_logp: Any) -> tuple[Any, float, Any]:
    """(B, T-1) advantages, the loss of the optimizer step and its gradient, by the local learner."""
    data = collate(chains)
    data.batch.values = _values(data)
    found = {}

    class Kept:
        def __getattr__(self, name: str) -> Any:
            return getattr(algorithm, name)

        def advantages(self, batch: TrainBatch) -> AdvantageOutput:
            found["advantages"] = algorithm.advantages(batch)
            return found["advantages"]

    optimizer = Gradients(model)
    policy = _FixedOld(Policy(model), old_logp)
    settings = UpdateSettings(micro_batch_tokens=100, recompute_old_logp=True)
    metrics = Updater(policy, Kept(), optimizer, settings).update(data, 1)  # type: ignore[arg-type]
    model.zero_grad()
    advantages = torch.where(data.batch.mask, found["advantages"].advantages, 0.0).float()
    return advantages, metrics["loss/policy"], optimizer.kept


class _FixedOld:
    """A policy whose old logprobs are given, a little off its own, so that ratios and clips matter."""

    def __init__(self, policy: Policy, old_logp: Any) -> None:
        self._policy, self._old_logp = policy, old_logp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def infer(self, data: Collated, chains: Any, budget: int) -> tuple[Any, Any]:
        return self._old_logp, torch.zeros_like(self._old_logp)


def _perturbed(model: Any, chains: list[Trajectory]) -> Any:
    data = collate(chains)
    logp, _ = Policy(model).infer(data, data.rows_of_chains(), 10_000)
    noise = 0.3 * torch.randn(logp.shape, generator=torch.Generator().manual_seed(1))
    return torch.where(data.batch.mask, logp + noise, 0.0)


@pytest.fixture(scope="module")
def upstream() -> ModuleType:
    """OpenRLHF's own denominators, from its source: importing the package would need Ray and vLLM."""
    found = importlib.util.find_spec("openrlhf")
    if found is None or found.origin is None:
        pytest.skip("openrlhf is not installed: pip install --no-deps openrlhf==0.11.2")
    path = Path(found.origin).parent / "utils" / "loss_utils.py"
    spec = importlib.util.spec_from_file_location("openrlhf_loss_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "sum_over_ranks", lambda strategy, numbers: list(numbers))


def _experiences(samples: list[SimpleNamespace], size: int) -> list[SimpleNamespace]:
    """Samples as OpenRLHF concatenates them: padded at the right, ``size`` rows each, numbered in order."""
    for number, sample in enumerate(samples):
        sample.index = [number]
    return [_concatenated(samples[i : i + size]) for i in range(0, len(samples), size)]


def _concatenated(samples: list[SimpleNamespace]) -> SimpleNamespace:
    def padded(name: str) -> Any:
        rows = [getattr(s, name)[0] for s in samples]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    tensors = ("sequences", "attention_mask", "action_mask", "rollout_log_probs")
    return SimpleNamespace(
        **{name: padded(name) for name in tensors},
        rewards=torch.cat([s.rewards for s in samples]),
        labels=[label for s in samples for label in s.labels],
        index=[i for s in samples for i in s.index],
        info={name: torch.cat([s.info[name] for s in samples]) for name in samples[0].info},
        base_action_log_probs=None,
        kl=None,
    )


def _sample(trajectory: Trajectory) -> SimpleNamespace:
    """What OpenRLHF's ``_process_response_into_experience`` makes of an executor's answer."""
    answer = to_sample(trajectory, "prompt", score=0.5)
    length = len(answer["observation_tokens"])
    mask = torch.zeros(length, dtype=torch.long)
    for start, end in answer["action_ranges"]:
        mask[start:end] = 1
    return SimpleNamespace(
        sequences=torch.tensor([answer["observation_tokens"]]),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        action_mask=mask[1:].unsqueeze(0),
        rollout_log_probs=torch.tensor([answer["rollout_log_probs"][1:]]),
        rewards=torch.tensor([answer["reward"]]),
        labels=[answer["label"]],
        info={},
    )


def _logprobs(model: Any, experience: SimpleNamespace) -> Any:
    """As OpenRLHF's ``Actor`` computes them: (R, T-1), 0 off the mask."""
    logits = model(experience.sequences, attention_mask=experience.attention_mask).logits.float()
    taken = logits[:, :-1].log_softmax(-1).gather(-1, experience.sequences[:, 1:, None]).squeeze(-1)
    return taken * experience.action_mask


def _injected(
    model: Any, chains: list[Trajectory], algorithm: Algorithm, old_logp: Any, upstream: ModuleType
) -> tuple[Any, float, Any]:
    """The same three by what is put into OpenRLHF, in four accumulated micro-batches whose order is shuffled."""
    samples = [_sample(chain) for chain in chains]
    fill_up(samples, 20)
    experiences = _experiences(samples, 5)
    rows_of = {c: r for r, c in enumerate(i for i, chain in enumerate(chains) for _ in chain.segments)}
    values = _values(collate(chains))
    for e in experiences:
        e.action_log_probs = torch.zeros(e.action_mask.shape)
        e.values = torch.zeros(e.action_mask.shape)
        for row, number in enumerate(e.index):
            if number in rows_of:
                width = min(e.action_mask.shape[1], old_logp.shape[1])
                e.action_log_probs[row, :width] = old_logp[rows_of[number], :width]
                e.values[row, :width] = values[rows_of[number], :width]
    data, rows = collect(experiences)
    put_advantages(experiences, data.batch, rows, algorithm)
    advantages = torch.zeros(len(chains), old_logp.shape[1])
    for row, (e, i) in enumerate(rows):
        width = min(experiences[e].advantages.shape[1], advantages.shape[1])
        advantages[row, :width] = experiences[e].advantages[i, :width]
    loss = AlgorithmLoss(algorithm)
    random.Random(5).shuffle(experiences)
    iterate = counts.with_counts(upstream.iter_grad_accum_global_norm, loss)
    total = 0.0
    for experience, info in iterate(iter(experiences), SimpleNamespace(), 4, lambda e: e.action_mask):
        value, *_ = loss(
            _logprobs(model, experience),
            experience.action_log_probs,
            experience.advantages,
            action_mask=experience.action_mask,
            rollout_log_probs=experience.rollout_log_probs,
            **info,
        )
        (value / 4).backward()  # DeepSpeed's mean over the accumulated micro-batches
        total += float(value.detach()) / 4
    assert loss.take() == pytest.approx(total, abs=1e-6)
    gradient = _gradient(model)
    model.zero_grad()
    return advantages, total, gradient


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_advantages_loss_and_gradient_are_the_local_learners(
    name: str, model: Any, chains: list[Trajectory], upstream: ModuleType
) -> None:
    algorithm, model = ALGORITHMS[name], copy.deepcopy(model)
    old_logp = _perturbed(model, chains)
    advantages, loss, gradient = _local(model, chains, algorithm, old_logp)
    other_advantages, other_loss, other_gradient = _injected(model, chains, algorithm, old_logp, upstream)
    assert gradient
    with_tokens = [i for i, chain in enumerate(chains) if chain.segments]
    torch.testing.assert_close(other_advantages[with_tokens], advantages, atol=1e-6, rtol=0)
    assert not other_advantages[9].any()
    assert other_loss == pytest.approx(loss, abs=1e-6)
    assert gradient.keys() == other_gradient.keys()
    for parameter, expected in gradient.items():
        torch.testing.assert_close(other_gradient[parameter], expected, atol=1e-6, rtol=0)
