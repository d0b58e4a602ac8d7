"""Steps per CPU-second on ALFWorld: AgentFly's engine against the stock ``AlfredTWEnv`` stack, same games, one process.

Both replay the same walkthroughs. Counted are loading, resetting and stepping, each in CPU time of this process, with
the two taking turns game by game. Our engine is measured twice: cold (every game translated anew) and warm (a
translation is kept from an earlier run, as in training after the first epoch).

Games are the official ones (``ALFWORLD_DATA``) or generated ones. AGENTFLY_BENCH_QUICK=1 plays only a few.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

# This file has the name of the package that it measures: its own folder must not stand in the way.
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

GAMES = 3 if os.environ.get("AGENTFLY_BENCH_QUICK") else 12
AIM = 3.0


def games() -> list[Any]:
    """Some games of every type."""
    from agentfly_envs_alfworld.games import data_folder, official_games, read_game
    from agentfly_envs_alfworld.generation import generated_game
    from agentfly_envs_alfworld.tasks import generated_tasks

    folder = data_folder()
    if folder is None:
        print("games: generated (set ALFWORLD_DATA for the official ones)")
        return [generated_game(t.fields["game"]) for t in islice(generated_tasks("valid_seen", 0), GAMES)]
    paths = official_games(folder, "valid_seen")
    print(f"games: official, from {folder}")
    return [read_game(path) for path in paths[:: max(1, len(paths) // GAMES)][:GAMES]]


def cpu(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


class Stock:
    """What ``AlfredTWEnv`` steps: TextWorld's ``PddlEnv`` with ALFWorld's wrappers, without its extra processes."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import PddlEnv

        infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        self._make = lambda: AlfredInfos(AlfredDemangler(PddlEnv(infos)))

    def start(self, game: Any, path: str) -> None:
        self._env = self._make()
        self._env.load(path)
        self._env.reset()

    def play(self, game: Any) -> bool:
        done = False
        for command in game.walkthrough:
            _, _, done = self._env.step(command)
        return done


class Ours:
    def __init__(self) -> None:
        from agentfly_envs_alfworld.engine import Engine

        self._engine = Engine()

    def start(self, game: Any, path: str) -> None:
        self._engine.start(game)

    def play(self, game: Any) -> bool:
        for command in game.walkthrough:
            self._engine.step(command)
        return self._engine.won


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENTFLY_ALFWORLD_CACHE"] = os.path.join(folder, "cache")
        chosen = games()
        os.environ["ALFWORLD_DATA"] = folder  # importing the package makes that folder
        measure(chosen, Path(folder))


def measure(chosen: list[Any], folder: Path) -> None:
    from agentfly_envs_alfworld.translation import translate

    players = {"stock": Stock(), "ours, cold": Ours(), "ours, warm": Ours()}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in players}
    for number, game in enumerate(chosen):
        path = folder / f"{number}.tw-pddl"
        data = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem}
        path.write_text(json.dumps({**data, "solvable": True, "walkthrough": list(game.walkthrough)}))
        for name, player in players.items():
            translate.cache_clear()  # the warm player finds on disk what the cold one has left there
            started, _ = cpu(lambda p=player, g=game, at=path: p.start(g, str(at)))
            stepped, won = cpu(lambda p=player, g=game: p.play(g))
            assert won, f"{name} did not win {game.name}"
            spent[name].append((started, stepped))
    steps = sum(len(game.walkthrough) for game in chosen)
    print(f"{len(chosen)} games, {steps} steps, CPU seconds of one process\n")
    print(f"{'':12}{'start s':>10}{'step ms':>10}{'steps/s':>10}{'with starts':>13}")
    rates = {}
    for name, rows in spent.items():
        starts, plays = sum(row[0] for row in rows), sum(row[1] for row in rows)
        rates[name] = steps / (starts + plays)
        start = statistics.median(row[0] for row in rows)
        print(f"{name:12}{start:10.3f}{1000 * plays / steps:10.2f}{steps / plays:10.1f}{rates[name]:13.2f}")
    for name in list(players)[1:]:
        print(f"{name}: {rates[name] / rates['stock']:.1f} times the stock's steps per CPU-second, starts counted")
    print(f"aim: {AIM:g} times")


if __name__ == "__main__":
    main()
