"""The engine against the stock one, and what it keeps between games."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from agentfly_envs_alfworld import translation
from agentfly_envs_alfworld.engine import Engine
from agentfly_envs_alfworld.expressions import evaluate
from agentfly_envs_alfworld.games import read_game
from agentfly_envs_alfworld.generation import generated_game
from agentfly_envs_alfworld.names import mangle, player_names
from agentfly_envs_alfworld.rules import read_rules
from agentfly_envs_alfworld.tasks import alfworld_tasks

from agentfly_core.types import UsageError

GAME = "generated:valid_seen:3:look_at_obj_in_light"


@pytest.fixture
def engine():
    with contextlib.closing(Engine()) as made:
        yield made


@pytest.mark.timeout(900)  # the stock engine takes its time
def test_transcripts_are_those_of_the_stock_engine(release, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))  # importing alfworld makes that folder
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    folder = release("valid_seen", 20)
    paths = [task.fields["game"] for task in list(alfworld_tasks("eval", data=str(folder)))[::12]]
    rng = random.Random(0)
    for path in paths:
        stock = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
        stock.load(path)
        state = stock.reset()
        game = read_game(Path(path))
        assert engine.start(game) == state.feedback
        assert engine.step("fly away") == stock.step("fly away")[0].feedback == "Nothing happens."
        for number, command in enumerate(game.walkthrough):
            asides = [c for c in state.admissible_commands if c.startswith(("examine", "look", "inventory", "help"))]
            for said in (rng.choice(asides), command) if number % 3 == 1 else (command,):
                state, score, done = stock.step(said)
                assert engine.step(said) == state.feedback
                assert sorted(engine.commands) == state.admissible_commands
                assert engine.won == state.won == done == bool(score)
        assert engine.won


def test_a_game_begins_anew_whatever_was_played_before(engine):
    game, other = generated_game(GAME), generated_game("generated:train:4:look_at_obj_in_light")
    opening = engine.start(game)
    commands, facts = sorted(engine.commands), engine.facts
    for command in game.walkthrough:
        engine.step(command)
    for between in (game, other, game):
        engine.start(between)
    assert (engine.start(game), sorted(engine.commands), engine.facts) == (opening, commands, facts)
    assert not engine.won


def test_translations_are_kept_on_disk_and_damaged_ones_made_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTFLY_ALFWORLD_CACHE", str(tmp_path / "kept"))
    game = generated_game(GAME)
    made = []
    real = translation._translate
    monkeypatch.setattr(translation, "_translate", lambda *a: made.append(1) or real(*a))
    translation.translate.cache_clear()
    first = translation.translate(game.domain, game.problem)
    (path,) = (tmp_path / "kept").glob("*.json.gz")
    translation.translate.cache_clear()
    assert translation.translate(game.domain, game.problem) == first
    assert len(made) == 1
    for damage in (b"no gzip", path.read_bytes()[:-100]):
        path.write_bytes(damage)
        translation.translate.cache_clear()
        assert translation.translate(game.domain, game.problem) == first
    assert len(made) == 3
    assert [p.name for p in (tmp_path / "kept").iterdir() if p.suffix != ".lock"] == [path.name]
    translation.translate.cache_clear()


def test_without_a_place_to_keep_them_it_still_plays(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("off", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("AGENTFLY_ALFWORLD_CACHE", place)
        assert translation.cache_folder() is None
    monkeypatch.setenv("AGENTFLY_ALFWORLD_CACHE", "off")
    argv = list(sys.argv)
    translation.translate.cache_clear()
    assert translation.translate(*parts()).objects["agent1"] == "agent"
    assert sys.argv == argv


def parts():
    game = generated_game(GAME)
    return game.domain, game.problem


def test_processes_that_want_the_same_game_translate_it_once(tmp_path):
    code = (
        "import sys\n"
        "from agentfly_envs_alfworld import translation\n"
        "from agentfly_envs_alfworld.generation import generated_game\n"
        f"game = generated_game({GAME!r})\n"
        "real, made = translation._translate, []\n"
        "translation._translate = lambda *a: made.append(1) or real(*a)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "translation.translate(game.domain, game.problem)\n"
        "print(len(made))\n"
    )
    env = {**os.environ, "AGENTFLY_ALFWORLD_CACHE": str(tmp_path)}
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe, text=True) for _ in range(2)
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    counts = [process.communicate(timeout=120)[0] for process in both]
    assert sorted(counts) == ["0\n", "1\n"]


def test_names_number_things_of_a_kind_from_the_last():
    ids = ["mug_bar_1", "mug_bar_2", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "agent1", "mugtype"]
    assert player_names(ids) == {
        "mug_bar_1": "mug 2",
        "mug_bar_2": "mug 1",
        "sink_bar_1": "sink 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "agent1": "agent1 ",
        "mugtype": "mugtype ",
    }
    assert mangle("Mug|+01.2|-00,5") == "Mug_bar__plus_01_dot_2_bar__minus_00_comma_5"


class Thing:
    name, indefinite, id = "mug 1", "a", ""


@pytest.mark.parametrize(
    ("expression", "text"),
    [("o.name", "mug 1"), ("o.indefinite + ' ' + o.name", "a mug 1"), ("o.id or o.name", "mug 1")],
)
def test_text_rules_read_names(expression, text):
    assert evaluate(expression, {"o": Thing()}) == text


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "o.__class__",
        "o.name()",
        "[o for o in ()]",
        "o.name * 3",
        "9 ** 9",
        "lambda: 0",
        "o.name if o else ''",
        "unknown",
        "o.unknown",
        "(",
        "",
        "(" * 10_000,
    ],
)
def test_text_rules_do_nothing_else(expression):
    with pytest.raises(UsageError, match="text rule"):
        evaluate(expression, {"o": Thing()})


def test_a_sentence_that_the_rules_could_read_as_more_is_parsed_with_them():
    grammar = generated_game(GAME).grammar
    plain = grammar.replace("Your task is to: ", "Your task is to: look, and ", 1)
    assert read_rules(plain).task.startswith("look, and ")
    odd = grammar.replace("Your task is to: ", "Your task is to: #look.feedback# ", 1)
    assert read_rules(odd).task is None
    with pytest.raises(UsageError, match="cannot be parsed"):
        read_rules("action {" + json.dumps(odd)[:50])
