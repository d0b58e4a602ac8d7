"""Where games are found, and the lists of tasks."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from agentfly_envs_alfworld.command import command
from agentfly_envs_alfworld.demonstrations import demonstrations
from agentfly_envs_alfworld.environment import ALFWorld
from agentfly_envs_alfworld.games import TASK_TYPES, data_folder, default_folder, official_games
from agentfly_envs_alfworld.tasks import alfworld_tasks
from click.testing import CliRunner

from agentfly_core.recipes.load import load_recipe
from agentfly_core.types import UsageError


def put(folder: Path, split: str, task: str, trial: str, **values: object) -> Path:
    path = folder / "json_2.1.1" / split / task / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    game = {"pddl_domain": "d", "grammar": "g", "pddl_problem": "p" * 20_000, "solvable": True, **values}
    path.write_text(json.dumps(game))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "train", "pick_and_place_simple-Mug-None-Desk-1", "trial_2")
    put(tmp_path, "train", "pick_and_place_simple-Mug-None-Desk-1", "trial_1", walkthrough=["look"] * 9000)
    put(tmp_path, "train", "look_at_obj_in_light-Mug-None-DeskLamp-2", "trial_3")
    put(tmp_path, "train", "pick_and_place_simple-Mug-None-Desk-3", "trial_4", solvable=False)
    put(tmp_path, "train", "pick_and_place_simple-AppleSliced-None-Desk-4", "trial_5")
    put(tmp_path, "train", "pick_and_place_with_movable_recep-Mug-Bowl-Desk-5", "trial_6")
    put(tmp_path, "valid_seen", "look_at_obj_in_light-Mug-None-DeskLamp-2", "trial_7")
    return tmp_path


def names(tasks):
    return [task.id for task in tasks]


def test_the_games_of_a_split_are_those_of_the_official_loader(folder):
    tasks = alfworld_tasks("train", data=str(folder))
    assert names(tasks) == [
        "train/look_at_obj_in_light-Mug-None-DeskLamp-2/trial_3",
        "train/pick_and_place_simple-Mug-None-Desk-1/trial_1",
        "train/pick_and_place_simple-Mug-None-Desk-1/trial_2",
    ]
    assert {t.fields["task_type"] for t in tasks} == {"look_at_obj_in_light", "pick_and_place_simple"}
    only = alfworld_tasks("train", data=str(folder), task_types=["look_at_obj_in_light"])
    assert names(only) == names(tasks)[:1]
    assert names(alfworld_tasks("eval", data=str(folder))) == [
        "valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-2/trial_7"
    ]
    with pytest.raises(UsageError, match=r"valid_unseen has no games.*agentfly alfworld download"):
        alfworld_tasks("eval", data=str(folder), subset="valid_unseen")


def test_alfworld_data_is_used_and_a_wrong_one_is_no_reason_to_generate(folder, monkeypatch, tmp_path_factory):
    assert data_folder() is None
    assert next(iter(alfworld_tasks("train"))).fields["game"].startswith("generated:train:")
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    assert len(list(ALFWorld.tasks("train"))) == 3
    assert next(iter(alfworld_tasks("train", games="generated"))).fields["game"].startswith("generated:")
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.setenv("ALFWORLD_DATA", str(empty))
    with pytest.raises(UsageError, match=r"ALFWORLD_DATA names .*agentfly alfworld download --data"):
        alfworld_tasks("train")
    with pytest.raises(UsageError, match="option 'data'"):
        alfworld_tasks("train", data=str(empty))
    # The official package sets the variable to its default when it is imported.
    monkeypatch.setenv("ALFWORLD_DATA", str(default_folder()))
    assert data_folder() is None
    with pytest.raises(UsageError, match="agentfly alfworld download"):
        alfworld_tasks("train", games="official")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"games": "offical"}, "kind of ALFWorld games"),
        ({"subset": "valid"}, "subset of ALFWorld"),
        ({"task_types": ["pick"]}, "task type of ALFWorld"),
    ],
)
def test_wrong_options_are_refused(options, what):
    with pytest.raises(UsageError, match=what):
        alfworld_tasks("train", **options)


def test_unknown_splits_are_refused(folder):
    with pytest.raises(UsageError, match="split of ALFWorld"):
        official_games(folder, "test")


def test_generated_tasks_are_endless_seeded_and_disjoint():
    def first(split, seed=0, **options):
        return [t.fields["game"] for t in islice(alfworld_tasks(split, seed, games="generated", **options), 60)]

    assert first("train") == first("train")
    assert not set(first("train")) & set(first("train", 1))
    assert first("eval") == first("eval", 1)
    assert {g.split(":")[1] for g in first("eval")} == {"valid_seen"}
    assert {g.split(":")[1] for g in first("eval", subset="valid_unseen")} == {"valid_unseen"}
    assert [g.split(":")[3] for g in first("train")[:6]] == list(TASK_TYPES)
    assert len(set(first("train"))) == 60


@pytest.mark.parametrize("form", ["text", "tools"])
def test_demonstrations_are_won_games(form):
    kinds = ["look_at_obj_in_light"]
    (row,) = demonstrations(4, form=form, games="generated", task_types=kinds, limit=1)
    messages = row["messages"]
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "assistant"
    if form == "text":
        assert messages[-1]["content"].startswith("use ")
    else:
        assert messages[-1]["tool_calls"][0]["function"]["name"] == "use"
        assert {m["role"] for m in messages[1:]} == {"assistant", "tool"}
        assert messages[2]["content"].startswith("You arrive at ")


@pytest.mark.parametrize("name", ["qwen", "smoke"])
def test_the_packaged_recipes_load(name):
    loaded = load_recipe(f"alfworld:{name}", ["model.path=tiny"])
    spec = loaded.environment_spec()
    assert (spec.kind, spec.target) == ("worker", "agentfly_envs_alfworld.environment:ALFWorld")
    assert loaded.eval_tasks(2)[1].fields["game"].startswith("generated:valid_seen:")


def test_the_commands_prepare_and_watch(translations, monkeypatch):
    run = CliRunner().invoke
    done = run(command, ["prepare", "--generated", "--subset", "valid_unseen", "--limit", "1"])
    assert done.exit_code == 0, done.output
    assert f"1 games in {translations}" in done.output
    watched = run(command, ["watch", "--type", "look_at_obj_in_light"])
    assert watched.exit_code == 0, watched.output
    assert "Your task is to: " in watched.output
    assert watched.output.endswith("\nWon.\n")
    refused = run(command, ["prepare", "--generated"])
    assert isinstance(refused.exception, UsageError)
    monkeypatch.setenv("AGENTFLY_ALFWORLD_CACHE", "off")
    assert isinstance(run(command, ["prepare", "--limit", "1"]).exception, UsageError)
