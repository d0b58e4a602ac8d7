from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys

import pytest

import agentfly_core.types as types
from agentfly_core.types import (
    Generation,
    MissingDependency,
    ResourceSpec,
    RewardResult,
    SamplingParams,
    Segment,
    Task,
    ToolContext,
    Trajectory,
    TurnSpan,
    UnknownName,
    derive_seed,
    text_of,
)


def segment(mask=(0, 0, 1, 1, 0, 1), spans=((0, 2, 4), (1, 5, 6)), prompt_len=2) -> Segment:
    n = len(mask)
    return Segment(tuple(range(n)), tuple(mask), (0.0,) * n, prompt_len, tuple(TurnSpan(*s) for s in spans))


def test_a_segment_whose_parts_agree_is_accepted():
    assert segment().spans[1] == TurnSpan(1, 5, 6)
    assert segment(mask=(0, 0), spans=()).spans == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"spans": ((0, 2, 4),)},  # a sampled token belongs to no turn
        {"spans": ((0, 2, 5),)},  # right count, wrong place
        {"spans": ((0, 2, 4), (1, 2, 3))},  # overlap
        {"spans": ((0, 2, 4), (1, 6, 7))},  # past the end
        {"prompt_len": 7},
        {"prompt_len": -1},
    ],
)
def test_a_segment_whose_parts_disagree_is_refused(changed):
    with pytest.raises(ValueError, match=r"disagree|outside"):
        segment(**changed)


def test_sequences_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        Segment((1, 2), (0, 1), (0.0,), 1, (TurnSpan(0, 1, 2),))
    with pytest.raises(ValueError, match="2 token ids but 1 logprobs"):
        Generation((1, 2), (0.0,), "stop")


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"max_tokens": 0},
        {"stop": "</answer>"},
        {"stop": ("a", "")},
        {"stop": (b"a",)},
        {"forbidden_token_ids": (3, -1)},
        {"forbidden_token_ids": ("a",)},
        {"forbidden_token_ids": (True,)},
    ],
)
def test_sampling_params_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_equal_keys_give_equal_seeds_in_every_process_and_neighbours_differ():
    key = (7, "step3/täsk", "t1", 0, 2)
    code = f"from agentfly_core.types import derive_seed; print(derive_seed(*{key!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert int(run.stdout) == derive_seed(*key)
    seeds = {derive_seed(7, "a", i, j) for i in range(20) for j in range(20)}
    assert len(seeds) == 400
    assert all(0 <= s < 2**63 for s in seeds)
    assert derive_seed(0, "1") != derive_seed(0, 1)
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")


def test_specs_are_equal_exactly_if_everything_in_them_is():
    def make(**fields) -> ResourceSpec:
        return ResourceSpec.make("worker", "m:f", options={"a": {"x": [1, 2]}, "b": 3}, **fields)

    assert make() == ResourceSpec.make("worker", "m:f", options={"b": 3, "a": {"x": (1, 2)}})
    assert hash(make()) == hash(pickle.loads(pickle.dumps(make())))
    for other in (
        make(network=True),
        make(memory=64),
        make(mounts=(("/a", "/b", True),)),
        make(environment=(("A", "1"),)),
    ):
        assert other != make()
    assert ResourceSpec.make("worker", options={"a": {"x": 1}}) != ResourceSpec.make(
        "worker", options={"a": [["x", 1]]}
    )


def test_the_text_of_content_leaves_images_out():
    assert text_of("plain") == "plain"
    parts = [{"type": "text", "text": "a"}, {"type": "image", "image": b""}, {"type": "text", "text": "b"}]
    assert text_of(parts) == "ab"


def test_the_response_is_the_final_one_or_else_the_last_the_assistant_said():
    messages = (
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "first"},
        {"role": "assistant", "content": [{"type": "text", "text": "last"}]},
        {"role": "tool", "content": "r"},
    )
    common = {
        "task": Task("t"),
        "chain_index": 0,
        "group": "g",
        "split": "train",
        "status": types.ChainStatus.COMPLETED,
    }
    assert Trajectory(**common, messages=messages).response == "last"
    assert Trajectory(**common, messages=messages, final_response="").response == ""
    assert Trajectory(**common).response == ""
    assert Trajectory(**common, segments=(segment(), segment())).sampled_tokens == 6


def test_a_reward_is_finite_only_if_all_its_numbers_are():
    assert RewardResult(1.0, {"a": 0.0}, (0.5,)).is_finite()
    for result in (RewardResult(math.nan), RewardResult(0.0, {"a": math.inf}), RewardResult(0.0, {}, (0.0, -math.inf))):
        assert not result.is_finite()


def test_a_chain_is_named_by_its_group():
    assert ToolContext("t", 3, group="step2/t").chain == "step2/t#3"
    assert ToolContext("t", 3).chain == "t#3"


def test_error_texts_say_what_to_do():
    assert str(UnknownName("tool", "serch", iter(["search", "maze"]))) == "unknown tool 'serch'; did you mean 'search'?"
    assert str(UnknownName("tool", "zzz", iter(["b", "a"]), hint="(hint)")) == "unknown tool 'zzz'; known: a, b (hint)"
    assert "pip install 'agentfly-core[local]'" in str(MissingDependency("torch", "training", "agentfly-core[local]"))


def test_every_public_name_exists():
    assert sorted(set(types.__all__)) == sorted(types.__all__)
    assert all(hasattr(types, name) for name in types.__all__)
