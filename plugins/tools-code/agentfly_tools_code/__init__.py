"""Code tools in sandboxes: a Python session, a shell, files; rewards that run code; an agent that writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly_core.hookspecs import Register, hookimpl

if TYPE_CHECKING:
    from agentfly_tools_code.agent import CodeAgent

__all__ = ["CodeAgent"]

AGENTFLY_API = (1, 1)

_TOOLS = {
    "code_interpreter": ("interpreter", "Run Python in a session that lasts as long as the chain."),
    "shell": ("shell", "Run bash commands in a session that lasts as long as the chain."),
    "read_file": ("files", "Read a text file of the workspace."),
    "write_file": ("files", "Write a text file of the workspace."),
    "edit_file": ("files", "Replace text in a file exactly, or take a change back."),
    "list_files": ("files", "List a folder of the workspace."),
    "search_files": ("files", "Search the files of the workspace for a regular expression."),
}


@hookimpl
def register_tools(register: Register[Any]) -> None:
    for name, (module, summary) in _TOOLS.items():
        register(f"agentfly_tools_code.{module}:{name}", name=name, summary=summary)


@hookimpl
def register_rewards(register: Register[Any]) -> None:
    at = "agentfly_tools_code.rewards"
    register(f"{at}:code_tests", name="code_tests", summary="1 if the code passes its tests, run in two sandboxes.")
    register(f"{at}:program_output", name="program_output", summary="1 if the program prints the answer.")


@hookimpl
def register_agents(register: Register[Any]) -> None:
    register("agentfly_tools_code.agent:CodeAgent", name="code", summary="Fenced Python instead of JSON calls.")


def __getattr__(name: str) -> Any:
    if name == "CodeAgent":
        from agentfly_tools_code.agent import CodeAgent

        return CodeAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
