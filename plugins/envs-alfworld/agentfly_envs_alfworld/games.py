"""Games: what one consists of, and where those of the official release lie."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.types import UnknownName, UsageError

SPLITS = ("train", "valid_seen", "valid_unseen")
"""As the release names them."""
RELEASE = "json_2.1.1"
"""The folder inside ``ALFWORLD_DATA`` that holds the splits."""
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
FILE = "game.tw-pddl"
_SOLVABLE = re.compile(rb'"solvable"\s*:\s*true')
_KEYS = {"pddl_domain": str, "grammar": str, "pddl_problem": str}


@dataclass(frozen=True)
class Game:
    """One game.

    Attributes:
        name: for messages.
        domain, problem: PDDL.
        grammar: text rules, with the task's sentence.
        walkthrough: commands that win.
    """

    name: str
    domain: str
    problem: str
    grammar: str
    walkthrough: tuple[str, ...] = ()


def read_game(path: Path) -> Game:
    """A ``game.tw-pddl`` file.

    Raises:
        UsageError: it is missing or is none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the game {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the game {path} is no JSON: {error}") from error
    wrong = [key for key, kind in _KEYS.items() if not isinstance(data, dict) or not isinstance(data.get(key), kind)]
    if wrong:
        raise UsageError(f"the game {path} lacks {', '.join(wrong)}: it is no TextWorld game of ALFWorld")
    walkthrough = data.get("walkthrough") or []
    if not isinstance(walkthrough, list) or not all(isinstance(action, str) for action in walkthrough):
        raise UsageError(f"the game {path} has a walkthrough that is no list of actions: {walkthrough!r:.60}")
    return Game(str(path), data["pddl_domain"], data["pddl_problem"], data["grammar"], tuple(walkthrough))


def default_folder() -> Path:
    """Where the official package keeps the games unless ``ALFWORLD_DATA`` says otherwise."""
    return Path.home() / ".cache" / "alfworld"


def data_folder(given: str | Path | None = None) -> Path | None:
    """The folder with the official games: the given one, ``ALFWORLD_DATA``, or the default. None where there is none.

    Raises:
        UsageError: a folder was named and holds no games.
    """
    named = given or os.environ.get("ALFWORLD_DATA")
    folder = Path(os.path.expandvars(named)).expanduser() if named else default_folder()
    if (folder / RELEASE).is_dir():
        return folder
    if given or (named and folder != default_folder()):
        what = "the option 'data'" if given else "ALFWORLD_DATA"
        raise UsageError(
            f"{what} names {folder}, which has no folder {RELEASE!r} with games; "
            f"get them with: agentfly alfworld download --data {folder}"
        )
    return None


@functools.lru_cache(maxsize=8)
def official_games(folder: Path, split: str) -> tuple[Path, ...]:
    """The solvable games of a split, sorted by path, without those that the release's own loader leaves out.

    Raises:
        UsageError: an unknown split, or one without games.
    """
    if split not in SPLITS:
        raise UnknownName("split of ALFWorld", split, SPLITS)
    root = folder / RELEASE / split
    found = [path for path in sorted(root.glob(f"*/*/{FILE}")) if task_type(path) and _SOLVABLE.search(_tail(path))]
    if not found:
        raise UsageError(f"{root} has no games ({FILE}); get them with: agentfly alfworld download --data {folder}")
    return tuple(found)


def task_type(path: Path) -> str:
    """From the folder's name; empty for tasks that the text game leaves out (slices, movable receptacles)."""
    name = path.parent.parent.name
    if "movable" in name or "Sliced" in name:
        return ""
    return next((kind for kind in TASK_TYPES if name.startswith(f"{kind}-")), "")


def _tail(path: Path) -> bytes:
    """The end of the file, where the flag stands after three long texts; all of it if it does not stand there."""
    data = path.read_bytes()
    end = data[-16384:]
    return end if b'"solvable"' in end else data
