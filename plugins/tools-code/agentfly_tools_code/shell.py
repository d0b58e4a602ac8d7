"""``shell``: a bash session that lasts as long as the chain."""

from __future__ import annotations

import re
from typing import Any

from agentfly_core.tools import configurable
from agentfly_core.types import ResourceError, ToolContext, ToolResult
from agentfly_tools_code.notes import describe_end, describe_loss
from agentfly_tools_code.sandboxes import SandboxGone, chain_sandbox
from agentfly_tools_code.session import Session
from agentfly_tools_code.tools import DEFAULT_MAX_OUTPUT, SandboxTool

_DESCRIPTION = """\
Run a bash command. Returns what it prints and its exit code. Working directory, variables and functions are kept from \
one call to the next. There is no standard input. End what is to run on with '&' and send its output to a file."""
_NOISE = re.compile(r"^bash: \[\d+: \d+ \(\d+\)\] tcsetattr: Inappropriate ioctl for device\n", re.MULTILINE)
"""What an interactive bash without a terminal says each time a signal ends one of its jobs."""
_FRESH = "The next call begins a new one in the workspace: working directory and variables are lost."


class Shell(SandboxTool):
    """Runs bash commands in the chain's sandbox. Background jobs end with the chain at the latest.

    Args:
        timeout: seconds one call may run. A command that cannot be interrupted costs the session its state.
        max_output: characters that are kept of what a call prints.
        sandbox: options of ``sandbox_spec``.
        name: what the model calls it.
    """

    def __init__(
        self,
        *,
        timeout: float | None = None,
        max_output: int = DEFAULT_MAX_OUTPUT,
        sandbox: dict[str, Any] | None = None,
        name: str = "shell",
    ) -> None:
        super().__init__(
            self._run_command,
            name=name,
            description=_DESCRIPTION,
            timeout=timeout,
            max_output=max_output,
            sandbox=sandbox,
        )

    async def _run_command(self, command: str, context: ToolContext) -> ToolResult:
        """Run it.

        Args:
            command: The command, or several lines of them.
        """
        seconds = self.limit(context)
        async with chain_sandbox(self.spec, context) as chain:
            try:
                async with chain.in_use() as sandbox:
                    session = chain.part("bash", lambda: Session("bash"))
                    answer = await session.run(sandbox, command, timeout=seconds, limit=self.max_output)
            except SandboxGone as error:
                return ToolResult(describe_loss(error), error=True)
        if answer.status == "missing":
            where = f"the image {self.spec.image!r}" if self.spec.image else "the sandbox"
            raise ResourceError(f"tool {self.name!r}: {where} has no {answer.detail}; take an image that has it")
        printed = _NOISE.sub("", answer.text).rstrip("\n")
        failed = answer.status != "exit" or answer.detail != "0"
        before = "[the shell ended since the last call: working directory and variables are lost]" * answer.lost_before
        if answer.status == "exit":
            note = f"[exit code {answer.detail}]" if failed else ""
        else:
            note = describe_end(answer, seconds, what="shell", lost=_FRESH)
        text = "\n".join(part for part in (before, printed, note) if part)
        return ToolResult(text or "[no output]", error=failed)


shell = configurable(Shell)
