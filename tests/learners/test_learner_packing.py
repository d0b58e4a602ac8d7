"""Micro-batches and shared prompts: what goes through the model together never changes what comes out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

from agentfly_core.learners.collate import Collated  # noqa: E402
from agentfly_core.learners.packing import LONGEST_PACK, Pack, lay_out, plan  # noqa: E402
from agentfly_core.learners.policy import Policy  # noqa: E402
from agentfly_core.types import TrainBatch  # noqa: E402


def grouped(prompts: list[int], chains: list[list[int]], *, seed: int = 0) -> tuple[Collated, list[list[int]]]:
    """One row a chain: each group's chains share a prompt of the given length; the tails have the given lengths."""
    g = torch.Generator().manual_seed(seed)
    rows, masks, group = [], [], []
    for number, (prompt, tails) in enumerate(zip(prompts, chains, strict=True)):
        shared = torch.randint(0, 256, (prompt,), generator=g).tolist()
        for tail in tails:
            rows.append(shared + torch.randint(0, 256, (tail,), generator=g).tolist())
            gaps = (torch.rand(tail, generator=g) < 0.3).tolist()
            masks.append([False] * (prompt - 1) + [not gap for gap in gaps[:-1]] + [True])
            group.append(number)
    width = max(map(len, rows))
    mask = torch.tensor([m + [False] * (width - 1 - len(m)) for m in masks])
    n = len(rows)
    batch = TrainBatch(
        mask=mask,
        chain=torch.arange(n),
        turn_ids=torch.where(mask, 0, -1),
        rewards=torch.zeros(n),
        scored=torch.ones(n, dtype=torch.bool),
        group=torch.tensor(group),
        turn_rewards=((0.0,),) * n,
    )
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    data = Collated(ids, torch.tensor([len(r) for r in rows]), batch)
    return data, [[row] for row in range(n)]


shapes = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(1, 15), min_size=1, max_size=5)), min_size=1, max_size=4
)


@settings(deadline=None)
@given(shapes, st.integers(1, 120), st.booleans())
def test_every_row_is_in_one_pack_and_the_budget_is_kept(shape: Any, budget: int, share: bool) -> None:
    data, chains = grouped([p for p, _ in shape], [tails for _, tails in shape])
    lengths = data.lengths.tolist()
    parts = plan(data, chains, budget, share=share)
    assert sorted(row for part in parts for row in part.rows) == list(range(len(lengths)))
    for part in parts:
        assert [i for pack in part.packs for i in pack.rows] == list(range(len(part.rows)))
        sizes = []
        for pack in part.packs:
            rows = [part.rows[i] for i in pack.rows]
            sizes.append(pack.shared + sum(lengths[row] - pack.shared for row in rows))
            assert len({int(data.batch.group[row]) for row in rows}) == 1
            assert not data.batch.mask[rows, : max(0, pack.shared - 1)].any()
            assert len({tuple(data.token_ids[row, : pack.shared].tolist()) for row in rows}) == 1
            assert share or len(rows) == 1
        assert len(part.packs) == 1 or len(part.packs) * max(sizes) <= budget


def test_rows_of_a_chain_stay_together() -> None:
    data, _ = grouped([10] * 3, [[3, 9], [2, 14], [5, 1]])
    chains = [[0, 1], [2, 3], [4, 5]]
    for budget in (1, 30, 60, 1000):
        for part in plan(data, chains, budget, share=True):
            assert all((set(unit) <= set(part.rows)) or not (set(unit) & set(part.rows)) for unit in chains)


def test_layout_by_hand() -> None:
    ids = torch.tensor([[7, 8, 1, 2, 0], [7, 8, 3, 0, 0]])
    mask = torch.tensor([[False, True, True, False], [False, True, False, False]])
    layout = lay_out(ids, mask, [Pack((0, 1), 2)])
    # the last masked token of each row is never fed: row 0 adds one token to the prompt, row 1 none
    assert layout.token_ids.tolist() == [[7, 8, 1]]
    assert layout.positions.tolist() == [[0, 1, 2]]
    assert layout.columns.tolist() == [1, 2, 1]
    longer = torch.tensor([[False, True, True, True], [False, True, True, False]])
    layout = lay_out(ids, longer, [Pack((0, 1), 2)])
    assert layout.token_ids.tolist() == [[7, 8, 1, 2, 3]]
    assert layout.positions.tolist() == [[0, 1, 2, 3, 2]]
    assert layout.columns.tolist() == [1, 2, 3, 1, 4]
    assert layout.allowed is not None
    assert layout.allowed[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_shared_prompt_changes_neither_logprobs_nor_gradient(make_model: Any, attention: str) -> None:
    data, chains = grouped([20, 12, 3], [[9, 4, 15, 6], [1, 7], [5, 5]])
    results = []
    for share in (False, True):
        model = make_model()
        model.set_attn_implementation(attention)
        policy = Policy(model, temperature=0.8)
        if share:
            policy = policy.sharing_prompts()
            assert policy.share_prompts
        logp = torch.zeros(data.batch.mask.shape)
        entropy = torch.zeros(data.batch.mask.shape)
        for part in policy.plan(data, chains, 200):
            found = policy.logprobs(data.token_ids[part.rows], data.batch.mask[part.rows], part.packs)
            logp[part.rows], entropy[part.rows] = found
        weight = torch.linspace(-1, 1, logp.numel()).reshape(logp.shape)
        (logp * weight).sum().backward()
        results.append((logp.detach(), entropy, {n: p.grad for n, p in model.named_parameters()}))
    plain, shared = results
    assert plain[0].abs().sum() > 0
    torch.testing.assert_close(shared[0], plain[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(shared[1], plain[1], atol=1e-5, rtol=0)
    for name, gradient in plain[2].items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(shared[2][name], gradient, atol=1e-5 * scale, rtol=0)


def test_a_model_with_windows_does_not_share(make_model: Any) -> None:
    model = make_model(use_sliding_window=True, sliding_window=64, max_window_layers=0)
    assert not Policy(model).sharing_prompts().share_prompts


def test_packs_stay_short() -> None:
    def rows_of_packs(prompt: int) -> list[int]:
        data, chains = grouped([prompt], [[100, 100, 100]])
        return sorted(len(p.rows) for part in plan(data, chains, 10_000, share=True) for p in part.packs)

    assert LONGEST_PACK == 384
    assert rows_of_packs(84) == [3]  # 84 + 3 * 100
    assert rows_of_packs(85) == [1, 2]
    assert rows_of_packs(285) == [1, 1, 1]
