"""``agentfly env``: listing environments, and playing one with piped input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agentfly_core.cli import cli

WORLD = '''
from agentfly_core.environments import TextEnvironment
from agentfly_core.hookspecs import hookimpl
from agentfly_core.types import Observation, StepResult, Task


class Doors(TextEnvironment):
    """Behind one of some doors is a prize."""

    def __init__(self, *, doors: int = 3, noisy: bool = False) -> None:
        self.doors, self.noisy = doors, noisy

    @staticmethod
    def tasks(split, seed=0):
        if split == "train":
            return [{"id": f"train-{n}", "right": n + 1} for n in range(2)]  # rows will do
        return [Task(f"{split}-{n}", fields={"right": n + 1}) for n in range(2)]

    def begin(self, task, seed):
        self.right = task.fields["right"]
        return f"{self.doors} doors. Task {task.id}." + ("\\x1b[2J" if self.noisy else "")

    def admissible_actions(self):
        return [f"open {n + 1}" for n in range(self.doors)]

    def act(self, action):
        if action == "smash":
            return StepResult("The guard comes.", reward=-0.5, truncated=True)
        if action == "wrap":
            return StepResult(Observation("Inside."))
        if action not in self.admissible_actions():
            return StepResult("What?")
        won = action == f"open {self.right}"
        return StepResult("You win." if won else "A wall.", reward=1.0 if won else 0.0, terminated=won)


@hookimpl
def register_environments(register):
    register(Doors, name="doors", summary="Doors and a prize.")
'''


@pytest.fixture
def play(tmp_path: Path):
    file = tmp_path / "doors.py"
    file.write_text(WORLD)

    def run(*arguments: str, says: str = "") -> Result:
        return CliRunner().invoke(cli, ["env", *arguments, "--plugin", str(file)], input=says)

    return run


def test_environments_are_listed(play):
    rows = {row["name"]: row for row in json.loads(play("list", "--json").stdout)}
    assert {"doors", "gymnasium", "textarena"} <= set(rows)
    assert rows["doors"]["options"] == ["doors=3", "noisy=False"]
    assert (rows["doors"]["description"], rows["doors"]["lists_tasks"]) == ("Doors and a prize.", True)
    assert "Doors and a prize." in play("list").stdout


def test_a_game_is_played_from_a_pipe(play):
    done = play("play", "doors", says="open 3\n\n/actions\ndance\nopen 1\nopen 2\n")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "3 doors. Task eval-0.",
        "Possible actions: open 1, open 2, open 3",
        "> open 3",
        "A wall.",
        "Possible actions: open 1, open 2, open 3",
        "> ",
        "> /actions",
        "open 1",
        "open 2",
        "open 3",
        "> dance",
        "What?",
        "Possible actions: open 1, open 2, open 3",
        "> open 1",
        "You win.",
        "(reward 1, 1 in all)",
        "The episode is over after 3 steps: reward 1",
    ]


def test_options_tasks_and_fields_choose_the_episode(play):
    done = play("play", "doors", "doors=50", "--split", "train", "--task", "1", says="open 2\n")
    assert "50 doors. Task train-1." in done.stdout
    assert "(50 possible actions: /actions lists them)" in done.stdout
    assert done.stdout.endswith("The episode is over after 1 step: reward 1\n")
    assert "Task own." in play("play", "doors", "--field", "right=3", says="open 3\n").stdout
    assert play("play", "doors", says="smash\n").stdout.endswith("The episode is cut off after 1 step: reward -0.5\n")


@pytest.mark.parametrize("says", ["open 3\n/quit\nopen 1\n", "open 3\n"])
def test_one_may_leave(play, says):
    done = play("play", "doors", says=says)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "Left after 1 step: reward 0")


def test_an_observation_of_the_wrong_type_is_one_error(play):
    done = play("play", "doors", says="wrap\n")
    assert done.exit_code == 2
    assert "error: step must return a StepResult of text" in done.stderr
    assert "got StepResult(observation=Observation(content='Inside.'" in done.stderr


def test_what_a_world_says_does_not_drive_the_terminal(play):
    assert "\x1b" not in play("play", "doors", "noisy=true").stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nowhere"], "unknown environment 'nowhere'"),
        (["doors", "door=3"], "did you mean 'doors'"),
        (["doors", "doors=many"], "option 'doors' of environment 'doors'"),
        (["doors", "--task", "7"], "--task 7: environment 'doors' has no such task for eval"),
        (["textarena"], "needs the option 'id'"),
    ],
)
def test_wrong_names_and_options_are_one_error(play, arguments, what):
    done = play("play", *arguments)
    assert (done.exit_code, what in done.stderr) == (2, True)
    assert done.stderr.count("error:") == 1
