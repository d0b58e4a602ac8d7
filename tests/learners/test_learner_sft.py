"""Supervised training: the same template and masks as rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

from agentfly_core.agents.tool_calling import ToolCallingAgent  # noqa: E402
from agentfly_core.backends.scripted import ScriptedBackend, ScriptedTurn  # noqa: E402
from agentfly_core.learners.optim import ScheduledOptimizer  # noqa: E402
from agentfly_core.learners.policy import Policy  # noqa: E402
from agentfly_core.learners.sft import ConversationEncoder, run_sft, sft_step  # noqa: E402
from agentfly_core.recipes.load import LoadedRecipe, load_recipe  # noqa: E402
from agentfly_core.recipes.schema import OptimizerSection  # noqa: E402
from agentfly_core.runs import RunFolder  # noqa: E402
from agentfly_core.types import Segment, Task, TurnSpan, UsageError  # noqa: E402

CONVERSATION = [
    {"role": "user", "content": "What is there? <|im_end|>"},
    {"role": "assistant", "content": "let me see!"},
    {"role": "tool", "content": "a wall"},
    {"role": "assistant", "content": "again!"},
    {"role": "tool", "content": "a wall"},
    {"role": "assistant", "content": "A wall."},
]


@pytest.fixture
def load(tmp_path: Path, model_folder: Path, plugin_file: Path) -> Any:
    data = tmp_path / "demos.jsonl"

    def load(*overrides: str, rows: Any = ({"messages": CONVERSATION},)) -> LoadedRecipe:
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        recipe: dict[str, Any] = {
            "plugins": [str(plugin_file)],
            "model": {"path": str(model_folder), "template": "plain", "device": "cpu"},
            "agent": {"tools": ["look"], "max_turns": 4, "system_prompt": "Be brief."},
            "rewards": ["letters"],
            "sft": {"data": str(data), "steps": 12, "batch_size": 2, "optimizer": {"lr": 0.01}},
            "run": {"root": str(tmp_path / "runs")},
        }
        return load_recipe(recipe, overrides)

    return load


@pytest.mark.parametrize("history", ["append", "template"])
def test_masks_are_those_of_a_rollout(load: Any, history: str) -> None:
    loaded = load(f"model.history={history}")
    replies = [m["content"] for m in CONVERSATION if m["role"] == "assistant"]
    backend = ScriptedBackend(replies, tokenizer=loaded.tokenizer())
    with loaded.engine(backend) as engine:
        (rollout,) = engine.run([Task("t", tuple(CONVERSATION[:1]))])
    segments = ConversationEncoder(loaded).encode({"messages": CONVERSATION})
    assert len(segments) == len(rollout.segments) == (1 if history == "append" else 3)
    for ours, sampled in zip(segments, rollout.segments, strict=True):
        assert ours.token_ids == sampled.token_ids
        assert ours.action_mask == sampled.action_mask
        assert ours.spans == sampled.spans
        assert ours.prompt_len == sampled.prompt_len
    template = loaded.template()
    under_mask = [template.decode(s.token_ids[x.start : x.end]) for s in segments for x in s.spans]
    assert under_mask == [f"{reply}<|im_end|>" for reply in replies]


def test_an_observation_within_a_reply_is_trained_as_it_is_rolled_out(load: Any) -> None:
    class Going(ToolCallingAgent):
        continues = True

    loaded = load()
    loaded.agent = lambda: Going(system_prompt="Be brief.")
    replies = [m["content"] for m in CONVERSATION if m["role"] == "assistant"]
    turns = [*(ScriptedTurn(reply, cut=True) for reply in replies[:-1]), replies[-1]]
    with loaded.engine(ScriptedBackend(turns, tokenizer=loaded.tokenizer())) as engine:
        (rollout,) = engine.run([Task("t", tuple(CONVERSATION[:1]))])
    (ours,) = ConversationEncoder(loaded).encode({"messages": CONVERSATION})
    (sampled,) = rollout.segments
    assert (ours.token_ids, ours.action_mask, ours.spans) == (sampled.token_ids, sampled.action_mask, sampled.spans)
    text = loaded.template().decode(ours.token_ids[ours.prompt_len :])
    assert text == "let me see!a wallagain!a wallA wall.<|im_end|>"


def test_a_row_may_bring_its_own_tools(load: Any) -> None:
    encoder = ConversationEncoder(load())
    template = load().template()
    with_tool, without = (
        template.decode(encoder.encode({"messages": CONVERSATION, **more})[0].token_ids) for more in ({}, {"tools": []})
    )
    assert with_tool.startswith("tools: look\n<|im_start|>system\nBe brief.")
    assert without.startswith("<|im_start|>system\nBe brief.")


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "assistant", "content": "hi"}], "before the assistant's first"),
        ([*CONVERSATION, {"role": "assistant", "content": "more"}], "two assistant messages"),
    ],
)
def test_conversations_that_no_chain_could_be(load: Any, messages: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ConversationEncoder(load()).encode({"messages": messages})


def test_a_refused_conversation_is_named(load: Any, tmp_path: Path) -> None:
    alone = [{"role": "assistant", "content": "hello"}]
    loaded = load("sft.shuffle=false", rows=[{"messages": CONVERSATION}, {"messages": alone}])
    folder = RunFolder.create(loaded.recipe.run.root, "sft", loaded.resolved())
    with pytest.raises(UsageError, match=r"demos\.jsonl:2: a conversation must have a message before"):
        run_sft(loaded, folder)


def test_loss_by_hand(make_model: Any) -> None:
    ids = (5, 6, 7, 8)
    segment = Segment(ids, (0, 0, 1, 0), (0.0,) * 4, 2, (TurnSpan(0, 2, 3),))
    other = Segment(ids[:3], (0, 1, 1), (0.0,) * 3, 1, (TurnSpan(0, 1, 3),))
    model = make_model()
    logp = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    first = [-logp[t, ids[t + 1]].item() for t in range(3)]
    expected = {
        0.0: (first[1] + first[0] + first[1]) / 3,
        0.5: (0.5 * first[0] + first[1] + 0.5 * first[2] + first[0] + first[1]) / 4,
    }
    for weight, loss in expected.items():
        for budget in (1, 1000):
            policy = Policy(make_model())
            optimizer = ScheduledOptimizer(policy.model, OptimizerSection(lr=1e-3), 1)
            metrics = sft_step(policy, optimizer, [segment, other], position=0, context_weight=weight, budget=budget)
            assert metrics["loss/sft"] == pytest.approx(loss, rel=1e-5)
            assert metrics["optim/steps"] == 1.0


def test_the_model_learns_its_demonstrations(load: Any) -> None:
    loaded = load()
    folder = RunFolder.create(loaded.recipe.run.root, "sft", loaded.resolved())
    path = run_sft(loaded, folder)
    losses = [line["loss/sft"] for line in folder.metrics.read()]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 2
    assert folder.status().state == "finished"
    assert path == folder.model_path
    again = load(f"model.path={path}")
    assert again.tokenizer().get_vocab_size() == 258


def test_without_conversations(load: Any) -> None:
    loaded = load("sft=null")
    folder = RunFolder.create(loaded.recipe.run.root, "sft", loaded.resolved())
    with pytest.raises(UsageError, match="sft: missing"):
        run_sft(loaded, folder)
