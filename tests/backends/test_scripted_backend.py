from __future__ import annotations

import asyncio

import pytest

from agentfly_core.backends.scripted import ScriptedBackend, ScriptedTurn, scripted_backend
from agentfly_core.types import (
    GenerationBackend,
    GenerationRequest,
    MissingDependency,
    SamplingParams,
    UsageError,
    WaveBackend,
)

STOP = 9


class Letters:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class LetterTokenizer:
    """a -> 1, b -> 2, ...; ``.`` is the stop token."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Letters:
        assert not add_special_tokens
        return Letters([STOP if c == "." else ord(c) - ord("a") + 1 for c in sequence])


def ask(key=None, max_tokens=8, stop=(STOP,)):
    return GenerationRequest([1, 2], SamplingParams(max_tokens=max_tokens, stop_token_ids=stop), chain_key=key)


def run(backend, *requests):
    async def all_of_them():
        return [await backend.generate(r) for r in requests]

    return asyncio.run(all_of_them())


def test_it_is_both_kinds_of_backend():
    backend = ScriptedBackend([])
    assert isinstance(backend, GenerationBackend)
    assert isinstance(backend, WaveBackend)


def test_text_is_encoded_and_followed_by_the_stop_token():
    (turn,) = run(ScriptedBackend(["ab"], LetterTokenizer()), ask())
    assert turn.token_ids == (1, 2, STOP)
    assert turn.logprobs == (-0.125, -0.25, -0.375)
    assert turn.finish_reason == "stop"


def test_text_that_ends_in_a_stop_token_gets_no_second_one():
    (turn,) = run(ScriptedBackend(["ab."], LetterTokenizer()), ask())
    assert turn.token_ids == (1, 2, STOP)


def test_a_cut_turn_has_no_stop_token():
    (turn,) = run(ScriptedBackend([ScriptedTurn("ab", cut=True)], LetterTokenizer()), ask())
    assert (turn.token_ids, turn.finish_reason) == ((1, 2), "length")


def test_max_tokens_cuts_before_the_stop_token():
    (turn,) = run(ScriptedBackend(["abc"], LetterTokenizer()), ask(max_tokens=3))
    assert (turn.token_ids, turn.logprobs, turn.finish_reason) == ((1, 2, 3), (-0.125, -0.25, -0.375), "length")


def test_ids_end_at_the_first_stop_token():
    (turn,) = run(ScriptedBackend([ScriptedTurn([4, STOP, 5], logprobs=-1.5)]), ask())
    assert (turn.token_ids, turn.logprobs, turn.finish_reason) == ((4, STOP), (-1.5, -1.5), "stop")


class DecodingTokenizer(LetterTokenizer):
    def decode(self, ids, skip_special_tokens=True):
        assert not skip_special_tokens
        return "".join("." if i == STOP else "_abcdefghi"[i] for i in ids)


def test_a_stop_text_ends_a_turn_with_the_id_that_completes_it():
    backend = ScriptedBackend(["abcabd", "abc", "ab.", "abd"], DecodingTokenizer())
    sampling = SamplingParams(max_tokens=8, stop_token_ids=(STOP,), stop=("bd", "ca", "xyz"))
    turns = run(backend, *[GenerationRequest([1, 2], sampling, chain_key=("g", 0, 0))] * 4)
    assert [(t.token_ids, t.finish_reason) for t in turns] == [
        ((1, 2, 3, 1), "stop"),
        ((1, 2, 3, STOP), "stop"),
        ((1, 2, STOP), "stop"),
        ((1, 2, 4), "stop"),
    ]


def test_a_stop_text_at_the_limit_ends_the_turn_and_one_behind_it_does_not():
    asked = [GenerationRequest([1], SamplingParams(max_tokens=n, stop=("c",))) for n in (3, 2)]
    assert [run(ScriptedBackend(["abcd"], DecodingTokenizer()), r)[0].finish_reason for r in asked] == [
        "stop",
        "length",
    ]
    with pytest.raises(UsageError, match="give ScriptedBackend a tokenizer that decodes"):
        run(ScriptedBackend([[1, 2]]), asked[0])


def test_a_script_with_a_forbidden_id_is_refused():
    asked = GenerationRequest([1], SamplingParams(stop_token_ids=(8, STOP), forbidden_token_ids=(3, 8)))
    with pytest.raises(UsageError, match="the id 3, which the request forbids"):
        run(ScriptedBackend(["abc"], LetterTokenizer()), asked)
    (turn,) = run(ScriptedBackend(["ab"], LetterTokenizer()), asked)
    assert turn.token_ids == (1, 2, STOP)


def test_every_chain_replays_the_turns_from_the_start():
    a, b = ("g", 0, 0), ("g", 1, 0)
    turns = run(ScriptedBackend([[1], [2]]), ask(a), ask(b), ask(a), ask(b))
    assert [t.token_ids for t in turns] == [(1,), (1,), (2,), (2,)]


def test_turns_by_chain_and_by_function():
    a, b = ("g", 0, 0), ("g", 1, 0)
    by_chain = run(ScriptedBackend({a: [[1]], b: [[2]]}), ask(b), ask(a))
    by_function = run(ScriptedBackend(lambda r: [r.chain_key[1] + 5]), ask(b), ask(a))
    assert [t.token_ids for t in by_chain] == [(2,), (1,)]
    assert [t.token_ids for t in by_function] == [(6,), (5,)]


def test_a_script_that_runs_out_says_which_chain_and_turn():
    with pytest.raises(UsageError, match=r"chain \('g', 0, 0\) has 1 turns, but turn 2"):
        run(ScriptedBackend([[1]]), ask(("g", 0, 0)), ask(("g", 0, 0)))


def test_a_given_error_is_raised():
    with pytest.raises(ValueError, match="no luck"):
        run(ScriptedBackend([ScriptedTurn(error=ValueError("no luck"))]), ask())


def test_wrong_number_of_logprobs():
    with pytest.raises(UsageError, match="2 token ids but 1 logprobs"):
        run(ScriptedBackend([ScriptedTurn([1, 2], logprobs=[-1.0])]), ask())


def test_text_without_a_tokenizer():
    with pytest.raises(UsageError, match="give ScriptedBackend a tokenizer"):
        run(ScriptedBackend(["ab"]), ask())


def test_one_text_in_place_of_a_list():
    with pytest.raises(UsageError, match="list of turns"):
        ScriptedBackend("ab")


@pytest.mark.parametrize(("limit", "message"), [(9, "at most 7"), (2, "at most 0")])
def test_a_request_that_could_outgrow_the_model_is_refused(limit, message):
    backend = ScriptedBackend([[1]], max_model_len=limit)
    with pytest.raises(UsageError, match=message):
        run(backend, ask(max_tokens=8))
    assert backend.requests == []


def test_an_empty_prompt_is_refused():
    with pytest.raises(UsageError, match="empty prompt"):
        run(ScriptedBackend([[1]]), GenerationRequest([], SamplingParams()))


def test_a_wave_keeps_its_order_whatever_the_delays():
    backend = ScriptedBackend({("g", 0, 0): [ScriptedTurn([1], delay=0.02)], ("g", 1, 0): [[2]]})
    wave = asyncio.run(backend.generate_wave([ask(("g", 0, 0)), ask(("g", 1, 0))]))
    assert [t.token_ids for t in wave] == [(1,), (2,)]
    assert (backend.peak, backend.running) == (2, 0)


def test_an_update_during_a_turn_shows_in_its_versions():
    async def scenario():
        backend = ScriptedBackend([ScriptedTurn([1], delay=0.02)], version=3)
        turn = asyncio.create_task(backend.generate(ask()))
        await asyncio.sleep(0)
        await backend.update_weights({}, 4)
        return await turn

    turn = asyncio.run(scenario())
    assert (turn.weight_version, turn.last_weight_version) == (3, 4)


def test_cancelling_frees_the_place():
    async def scenario():
        backend = ScriptedBackend([ScriptedTurn([1], delay=60)])
        turn = asyncio.create_task(backend.generate(ask()))
        await asyncio.sleep(0)
        assert backend.running == 1
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        return backend.running

    assert asyncio.run(scenario()) == 0


def test_a_closed_backend_refuses():
    backend = ScriptedBackend([[1]])
    asyncio.run(backend.close())
    with pytest.raises(UsageError, match="closed"):
        run(backend, ask())


def test_a_recipe_names_texts_and_a_model_folder(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"hello": 3, "[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (turn,) = run(scripted_backend(tmp_path, turns=["hello"]), ask())
    assert turn.token_ids == (3, STOP)


def test_a_recipe_whose_model_has_no_tokenizer(tmp_path):
    with pytest.raises(UsageError, match=r"no tokenizer at .*tokenizer\.json"):
        scripted_backend(tmp_path, turns=["hello"])


def test_a_recipe_without_tokenizers_installed(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MissingDependency, match=r"agentfly-core\[tokenizers\]"):
        scripted_backend(tmp_path, turns=["hello"])
