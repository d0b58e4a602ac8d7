"""What players write, in the words of the game; and its actions as tools."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterator

from agentfly_core.environments import ActionTool

LONGEST = 200
"""Characters of the longest action that is looked at."""

_ARTICLE = re.compile(r"\b(?:the|a|an)\s+")
_PUT = re.compile(r"(?:put|place|move) (.+?) (?:in/on|in|on|into|onto|to|inside) (.+)")
_WORDINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_PUT, r"move \1 to \2"),
    (re.compile(r"(?:goto|walk to|move to|go) (?!to )(.+)"), r"go to \1"),
    (re.compile(r"(?:pick up|pick|grab|get) (.+?) (?:from|off|out of|in|on) (.+)"), r"take \1 from \2"),
    (re.compile(r"(?:use|toggle|turn on|turn off|switch on|switch off) (.+)"), r"use \1"),
    (re.compile(r"(clean|heat|cool|slice) (.+?) (?:using|in|on|at) (.+)"), r"\1 \2 with \3"),
    (re.compile(r"look around"), "look"),
    (re.compile(r"look at (.+)"), r"examine \1"),
)
"""Other ways to say what the game understands; the first that fits counts."""


def in_the_games_words(action: str, possible: Container[str]) -> str:
    """The possible command that ``action`` means, or the action, tidied, if it means none.

    Older prompts and papers say ``put X in/on Y`` where this version of the game says ``move X to Y``: both are taken.
    """
    tidy = " ".join(action[: LONGEST + 1].split()).rstrip(".!").lower()
    if len(action) > LONGEST:
        return tidy
    return next((wording for wording in _wordings(tidy) if wording in possible), tidy)


def _wordings(action: str) -> Iterator[str]:
    for text in (action, " ".join(_ARTICLE.sub("", action).split())):
        yield text
        for pattern, words in _WORDINGS:
            if match := pattern.fullmatch(text):
                yield match.expand(words)
                break


def as_call(command: str) -> tuple[str, dict[str, str]]:
    """The tool and its arguments that stand for a command of the game.

    Raises:
        ValueError: no tool does.
    """
    for tool in action_tools():
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(tool.action or tool.name))
        if match := re.fullmatch(pattern, command):
            return tool.name, match.groupdict()
    raise ValueError(f"no tool stands for the command {command!r}")


@functools.lru_cache(maxsize=1)
def action_tools() -> tuple[ActionTool, ...]:
    """The game's actions as tools."""
    named: Callable[[str], dict[str, str]] = lambda text: {"type": "string", "description": text}  # noqa: E731
    thing = named("An object, with its number: apple 1")
    place = named("A place, with its number: countertop 2")
    both = {"object": thing, "place": place}
    return (
        ActionTool("go_to", "Go to a place.", {"place": place}, "go to {place}"),
        ActionTool("take", "Take an object from where you stand.", both, "take {object} from {place}"),
        ActionTool("put", "Put the object that you carry in or on a place.", both, "move {object} to {place}"),
        ActionTool("open", "Open a place.", {"place": place}, "open {place}"),
        ActionTool("close", "Close a place.", {"place": place}, "close {place}"),
        ActionTool("use", "Switch a lamp on or off.", {"object": thing}, "use {object}"),
        ActionTool("clean", "Clean what you carry in a sink.", both, "clean {object} with {place}"),
        ActionTool("heat", "Heat what you carry in a microwave.", both, "heat {object} with {place}"),
        ActionTool("cool", "Cool what you carry in a fridge.", both, "cool {object} with {place}"),
        ActionTool(
            "slice",
            "Slice an object with the knife that you carry.",
            {"object": thing, "knife": named("A knife, with its number")},
            "slice {object} with {knife}",
        ),
        ActionTool(
            "examine",
            "Look closely at an object or a place.",
            {"thing": named("Its name, with its number")},
            "examine {thing}",
        ),
        ActionTool("look", "Look around where you stand."),
        ActionTool("inventory", "Say what you carry."),
    )
