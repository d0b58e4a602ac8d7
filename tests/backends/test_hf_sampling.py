"""Distributions of ``sample`` on a vocabulary of five, worked out by hand."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from agentfly_core.backends.sampling import SamplingPlan, UniformStream, sample  # noqa: E402
from agentfly_core.types import SamplingParams  # noqa: E402

pytestmark = pytest.mark.torch

PROBS = [0.1, 0.4, 0.05, 0.25, 0.2]
DRAWS = 20_000
CHI_SQUARE_999 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}
"""0.999 quantiles by degrees of freedom."""


def draw(params, probs=PROBS, count=DRAWS, seed=7):
    stream = UniformStream(seed)
    uniforms = torch.tensor([stream.draw() for _ in range(count)])
    logits = torch.log(torch.tensor(probs)).expand(count, -1) + 3.0  # logits are free up to a constant
    plan = SamplingPlan.of([params] * count, len(probs), torch.device("cpu"))
    return sample(logits, plan, uniforms)


TEMPERED = [math.sqrt(p) / sum(math.sqrt(q) for q in PROBS) for p in PROBS]  # temperature 2


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), PROBS),
        (SamplingParams(temperature=2.0), TEMPERED),
        (SamplingParams(top_k=2), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        (SamplingParams(top_k=99), PROBS),
        (SamplingParams(top_p=0.6), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),  # 0.4 < 0.6 <= 0.65
        (SamplingParams(top_p=0.7), [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        (SamplingParams(top_p=0.01), [0, 1, 0, 0, 0]),
        # top-k first: of 0.4, 0.25, 0.2 the first two hold 0.65 / 0.85 = 0.76 of the mass
        (SamplingParams(top_k=3, top_p=0.75), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
    ],
)
def test_frequencies(params, expected):
    ids, _ = draw(params)
    counts = torch.bincount(ids, minlength=5).tolist()
    assert [c for c, e in zip(counts, expected, strict=True) if e == 0] == [0] * expected.count(0)
    likely = [(c, e) for c, e in zip(counts, expected, strict=True) if e > 0]
    if len(likely) > 1:
        chi_square = sum((c - DRAWS * e) ** 2 / (DRAWS * e) for c, e in likely)
        assert chi_square < CHI_SQUARE_999[len(likely) - 1]


@pytest.mark.parametrize("params", [SamplingParams(top_k=2), SamplingParams(top_p=0.6), SamplingParams()])
def test_logprobs_are_of_the_unfiltered_distribution(params):
    ids, logprobs = draw(params, count=50)
    assert logprobs.tolist() == pytest.approx([math.log(PROBS[i]) for i in ids.tolist()], abs=1e-6)


def test_logprobs_are_after_temperature():
    ids, logprobs = draw(SamplingParams(temperature=2.0), count=50)
    assert logprobs.tolist() == pytest.approx([math.log(TEMPERED[i]) for i in ids.tolist()], abs=1e-6)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(forbidden_token_ids=(1,)), [0.1 / 0.6, 0, 0.05 / 0.6, 0.25 / 0.6, 0.2 / 0.6]),
        (SamplingParams(forbidden_token_ids=(0, 1, 2, 3)), [0, 0, 0, 0, 1]),
        (SamplingParams(forbidden_token_ids=(1,), top_k=2), [0, 0, 0, 0.25 / 0.45, 0.2 / 0.45]),
        # of 0.25, 0.2, 0.1, 0.05 the first two hold 0.45 / 0.6 = 0.75 of the mass
        (SamplingParams(forbidden_token_ids=(1, 1), top_p=0.7), [0, 0, 0, 0.25 / 0.45, 0.2 / 0.45]),
    ],
)
def test_forbidden_ids_are_never_sampled_and_logprobs_are_of_the_whole_distribution(params, expected):
    ids, logprobs = draw(params)
    counts = torch.bincount(ids, minlength=5).tolist()
    likely = [(c, e) for c, e in zip(counts, expected, strict=True) if e > 0]
    assert sum(c for c, _ in likely) == DRAWS
    if len(likely) > 1:
        chi_square = sum((c - DRAWS * e) ** 2 / (DRAWS * e) for c, e in likely)
        assert chi_square < CHI_SQUARE_999[len(likely) - 1]
    assert logprobs[:50].tolist() == pytest.approx([math.log(PROBS[i]) for i in ids[:50].tolist()], abs=1e-6)


def test_temperature_0_takes_the_likeliest_that_is_allowed():
    ids, logprobs = draw(SamplingParams(temperature=0.0, forbidden_token_ids=(1,)), count=1)
    assert ids.tolist() == [3]
    assert logprobs.tolist() == pytest.approx([math.log(0.25)], abs=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 0.4, 1 - 2**-24])
def test_what_float32_cannot_hold_beside_a_forbidden_id_is_still_sampled_from(uniform):
    logits = torch.tensor([[300.0, 0.0, 1.0]])
    plan = SamplingPlan.of([SamplingParams(forbidden_token_ids=(0,))], 3, torch.device("cpu"))
    ids, logprobs = sample(logits, plan, torch.tensor([uniform]))
    assert ids.item() == (1 if uniform < 1 / (1 + math.e) else 2)
    assert logprobs.item() == pytest.approx(logits[0, ids.item()].item() - 300.0)


def test_a_neighbour_with_forbidden_ids_changes_no_bit():
    logits = torch.randn(1, 500, generator=torch.Generator().manual_seed(3)).expand(400, -1)
    uniforms = torch.linspace(0, 1 - 2**-24, 400)
    alone = SamplingPlan.of([SamplingParams()] * 400, 500, torch.device("cpu"))
    params = [SamplingParams(forbidden_token_ids=(7,) if i % 2 else ()) for i in range(400)]
    mixed = SamplingPlan.of(params, 500, torch.device("cpu"))
    for plain, beside in zip(sample(logits, alone, uniforms), sample(logits, mixed, uniforms), strict=True):
        assert torch.equal(plain[::2], beside[::2])


def test_temperature_0_takes_the_likeliest_with_its_untempered_logprob():
    ids, logprobs = draw(SamplingParams(temperature=0.0), count=3)
    assert ids.tolist() == [1, 1, 1]
    assert logprobs.tolist() == pytest.approx([math.log(0.4)] * 3, abs=1e-6)


def test_rows_keep_their_own_parameters():
    params = [SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(temperature=2.0, top_k=1)]
    plan = SamplingPlan.of(params, 5, torch.device("cpu"))
    ids, logprobs = sample(torch.log(torch.tensor(PROBS)).expand(3, -1), plan, torch.tensor([0.99, 0.03, 0.99]))
    assert ids.tolist() == [1, 0, 1]
    assert logprobs.tolist() == pytest.approx([math.log(0.4), math.log(0.1), math.log(TEMPERED[1])], abs=1e-6)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(top_k=3)])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_unit_interval_never_give_an_impossible_token(params, uniform):
    logits = torch.tensor([[-math.inf, 2.0, -math.inf, 1.0, -math.inf]])
    plan = SamplingPlan.of([params], 5, torch.device("cpu"))
    ids, logprobs = sample(logits, plan, torch.tensor([uniform]))
    assert ids.item() in (1, 3)
    assert math.isfinite(logprobs.item())


def test_half_precision_logits_are_computed_with_in_float32():
    plan = SamplingPlan.of([SamplingParams()], 2, torch.device("cpu"))
    _, logprobs = sample(torch.tensor([[0.0, 0.0]], dtype=torch.bfloat16), plan, torch.tensor([0.3]))
    assert logprobs.item() == pytest.approx(math.log(0.5), abs=1e-7)


def test_a_stream_depends_on_its_seed_alone():
    first, again, other = (UniformStream(seed) for seed in (5, 5, 6))
    numbers = [first.draw() for _ in range(600)]
    assert numbers == [again.draw() for _ in range(600)]
    assert numbers[:10] != [other.draw() for _ in range(10)]
    assert len(set(numbers)) > 590
    assert all(0 <= n < 1 for n in numbers)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**128 + 3, -1])
def test_any_integer_is_a_seed(seed):
    assert 0 <= UniformStream(seed).draw() < 1
