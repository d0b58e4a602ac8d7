"""The simulator's commands as tools."""

from __future__ import annotations

import functools
import re

from agentfly_core.environments import ActionTool

LONGEST = 300
"""Characters of the longest action that is handed to the simulator."""

_SYNONYMS = (
    ("put_down", "drop {object}"),
    ("pour", "pour {object} in {container}"),
    ("dunk", "dunk {object} in {container}"),
)
"""Other forms of commands that tools stand for."""


def tidy(action: str) -> str:
    """The action on one line, in characters that can be sent, and no longer than an action can be."""
    return " ".join(action[: LONGEST + 1].split())[:LONGEST].encode("utf-8", "replace").decode()


def as_call(command: str) -> tuple[str, dict[str, str]]:
    """The tool and its arguments that stand for a command of the simulator.

    Raises:
        ValueError: no tool does.
    """
    if re.fullmatch("[0-9]{1,3}", command):
        return "choose", {"number": command}
    forms = [(tool.name, tool.action or tool.name) for tool in action_tools() if tool.name != "choose"]
    for name, form in [*forms, *_SYNONYMS]:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(form))
        if match := re.fullmatch(pattern, command):
            return name, match.groupdict()
    raise ValueError(f"no tool stands for the command {command!r}")


@functools.lru_cache(maxsize=1)
def action_tools() -> tuple[ActionTool, ...]:
    """Every command. Which of two fits is tried from the first, so the longer forms come first."""

    def named(text: str) -> dict[str, str]:
        return {"type": "string", "description": text}

    thing = {"object": named("Its name, where needed with its place: apple in red box")}
    into = {**thing, "container": named("Where to: red box")}
    return (
        ActionTool("look_around", "Describe the room.", {}, "look around"),
        ActionTool("look_in", "Look into something.", thing, "look in {object}"),
        ActionTool("look_at", "Look at something.", thing, "look at {object}"),
        ActionTool("examine", "Describe something in detail.", thing, "examine {object}"),
        ActionTool("inventory", "Say what you carry."),
        ActionTool("task", "Say what the task is."),
        ActionTool("go_to", "Go to a room next to this one.", {"place": named("Its name: kitchen")}, "go to {place}"),
        ActionTool(
            "teleport",
            "Go to any room at once, where the game allows it.",
            {"place": named("Its name")},
            "teleport to {place}",
        ),
        ActionTool("open", "Open a door or a container.", thing, "open {object}"),
        ActionTool("close", "Close a door or a container.", thing, "close {object}"),
        ActionTool("activate", "Switch a device on.", thing, "activate {object}"),
        ActionTool("deactivate", "Switch a device off.", thing, "deactivate {object}"),
        ActionTool("pick_up", "Take something into the inventory.", thing, "pick up {object}"),
        ActionTool("put_down", "Put something from the inventory down.", thing, "put down {object}"),
        ActionTool("move", "Move something into a container or onto a place.", into, "move {object} to {container}"),
        ActionTool("pour", "Pour a liquid into a container.", into, "pour {object} into {container}"),
        ActionTool("dunk", "Dunk a container into a liquid.", into, "dunk {object} into {container}"),
        ActionTool("mix", "Mix what is in a container.", thing, "mix {object}"),
        ActionTool(
            "use_on",
            "Use an object on another.",
            {**thing, "target": named("On what: substance in metal pot")},
            "use {object} on {target}",
        ),
        ActionTool("use", "Use an object.", thing, "use {object}"),
        ActionTool(
            "connect",
            "Connect two electrical terminals.",
            {**thing, "target": named("To what: anode in battery")},
            "connect {object} to {target}",
        ),
        ActionTool("disconnect", "Take the wires off a component.", thing, "disconnect {object}"),
        ActionTool("eat", "Eat something.", thing, "eat {object}"),
        ActionTool("flush", "Flush a toilet.", thing, "flush {object}"),
        ActionTool("read", "Read a text.", thing, "read {object}"),
        ActionTool(
            "focus_on",
            "Say which object the task is about. The wrong one can fail the task for good.",
            thing,
            "focus on {object}",
        ),
        ActionTool("wait", "Let ten moments pass."),
        ActionTool("wait_briefly", "Let one moment pass.", {}, "wait1"),
        ActionTool(
            "choose",
            "Answer an ambiguous request with the number of what was meant.",
            {"number": {"type": "string", "pattern": "^[0-9]{1,3}$", "description": "As listed: 0"}},
            "{number}",
        ),
    )
