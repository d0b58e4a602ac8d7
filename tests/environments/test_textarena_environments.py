"""Games of the real TextArena: one seat is the agent's."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

pytest.importorskip("textarena", reason="TextArena is not installed")

from agentfly_core.agents.text_action import TextActionAgent
from agentfly_core.environments.textarena import TextArenaEnvironment
from agentfly_core.rewards.process import environment_return
from agentfly_core.testing import check_environment, play
from agentfly_core.types import ChainStatus, ResourceSpec, Task, UsageError

GUESS = "GuessTheNumber-v0"
TARGET = "agentfly_core.environments.textarena:TextArenaEnvironment"


def played(options: dict[str, Any], actions: list[str], seed: int = 5) -> list[Any]:
    """The first observation's text, then what each action led to."""

    async def main() -> list[Any]:
        world = TextArenaEnvironment(**options)
        first = await world.reset(Task("t"), seed)
        results = [await world.step(action) for action in actions]
        await world.close()
        await world.close()
        return [first.content, *results]

    return asyncio.run(main())


def column(text: str) -> str:
    """Plays the first of the columns 2, 5, 8 that is free."""
    board = text.rpartition("Available Moves:")[2]
    return next(move for move in ("[2]", "[5]", "[8]") if move in board)


class Column:
    def __call__(self, text: str) -> str:
        assert text.startswith("[GAME] You are Player 1 in Tic Tac Toe.")
        return column(text)


def secret(seed: int) -> int:
    """The number to guess, drawn as the game draws it."""
    return random.Random(seed).randint(1, 20)


def test_a_game_for_one_tells_only_what_is_new():
    seed = next(seed for seed in range(100) if 1 < secret(seed) < 20)
    number = secret(seed)
    moves = [f"[{number - 1}]", str(number + 1), f"I say [{number}].", "[1]"]
    first, one, two, right, over = played({"id": GUESS}, moves, seed)
    assert first.startswith("[GAME] You are Player 0. You are playing Guess The Number.")
    assert one.observation == "[GAME] The target number is higher."
    assert two.observation == "[GAME] The target number is lower."
    assert (right.observation, right.reward, right.terminated) == (
        "Congratulations! You guessed the correct number.",
        1.0,
        True,
    )
    assert right.info["rewards"] == {0: 1}
    assert [r.reward for r in (one, two)] == [0.0, 0.0]
    assert (over.done, over.reward) == (True, 0.0)


def test_invalid_moves_are_answered_by_the_game_and_cost_what_it_says():
    _, first, second = played({"id": "TicTacToe-v0", "opponent": f"{__file__}:column"}, ["[9]", "[10]"])
    assert (first.done, "attempted an invalid move" in first.observation) == (False, True)
    assert (second.terminated, second.reward, second.info["invalid_move"]) == (True, -1.0, True)


@pytest.mark.parametrize("opponent", ["column", "Column"])
def test_another_players_moves_are_made_in_between(opponent):
    options = {"id": "TicTacToe-v0", "opponent": f"{__file__}:{opponent}"}
    first, one, two, won = played(options, ["[0]", "[3]", "[6]"])
    assert "[Player 1]" not in first
    assert "[Player 1] [2]" in one.observation
    assert "[Player 1] [5]" in two.observation
    assert "[Player 0]" not in one.observation
    assert (won.reward, won.terminated, won.info["rewards"]) == (1.0, True, {0: 1, 1: -1})
    assert won.observation.endswith("Player 0 has won!")


def test_a_later_seat_waits_for_the_others():
    first, *results = played({"id": "TicTacToe-v0", "seat": 1, "opponent": f"{__file__}:column"}, ["0", "1", "3"])
    assert "You are Player 1 in Tic Tac Toe." in first
    assert "[Player 0] [2]" in first
    assert [r.reward for r in results[:2]] == [0.0, -1.0]
    assert results[1].info["reason"] == "Player 0 has won!"


def test_games_repeat_beside_each_other_and_leave_global_randomness_alone():
    cards = {"id": "KuhnPoker-v0-short", "seat": 1}
    actions = ["[check]", "[call]", "[bet]"] * 3

    def alone(seed):
        return [getattr(r, "observation", r) for r in played(cards, actions, seed)]

    async def beside():
        worlds = [TextArenaEnvironment(**cards) for _ in range(2)]
        seen = [[(await world.reset(Task("t"), seed)).content] for world, seed in zip(worlds, (3, 4), strict=True)]
        for action in actions:
            for world, texts in zip(worlds, seen, strict=True):
                texts.append((await world.step(action)).observation)
        return seen

    before = random.getstate()
    assert asyncio.run(beside()) == [alone(3), alone(4)]
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"id": "NoSuchGame-v0"}, "NoSuchGame-v0"),
        ({"id": GUESS, "players": 0}, "players must be from 1"),
        ({"id": GUESS, "seat": -1}, "no seat -1"),
        ({"id": GUESS, "seat": 1}, "has 1 players, so there is no seat 1"),
        ({"id": GUESS, "players": 2}, "not played by 2 players"),
        ({"id": GUESS, "arguments": {"speed": 1}}, "cannot be made"),
        ({"id": GUESS, "opponent": "clever"}, "opponent must be 'random'"),
        ({"id": "TicTacToe-v0", "opponent": "no_such_module_at_all:f"}, "cannot be imported"),
        ({"id": "DontSayIt-v0", "seat": 1, "players": 99}, "players must be from 1 to"),
    ],
)
def test_wrong_options_are_one_clear_error(options, what):
    with pytest.raises(UsageError, match=what):
        played(options, [])


def test_textarena_keeps_the_contract_here_and_in_a_worker():
    moves = [f"[{square}]" for square in range(9)]
    check_environment(
        TextArenaEnvironment, [Task("a"), Task("b")], options={"id": "TicTacToe-v0"}, actions=moves, timeout=200
    )


def test_a_chain_plays_textarena():
    spec = ResourceSpec.make("object", TARGET, options={"id": GUESS})
    task = Task("t", fields={"seed": 5})
    turns = ["[20]" if secret(5) != 20 else "[19]", str(secret(5))]
    trajectory = play(
        turns, task, agent=TextActionAgent(), environment=spec, reward=environment_return, max_turns=5, timeout=240.0
    )
    assert (trajectory.status, trajectory.reward) == (ChainStatus.COMPLETED, 1.0)
