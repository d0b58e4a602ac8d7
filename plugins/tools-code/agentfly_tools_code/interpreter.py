"""``code_interpreter``: Python in a session that lasts as long as the chain."""

from __future__ import annotations

import re
import struct
from typing import Any

from agentfly_core.tools import configurable
from agentfly_core.types import ImagePart, Sandbox, TextPart, ToolContext, ToolResult
from agentfly_tools_code.fences import unfence
from agentfly_tools_code.notes import describe_end, describe_loss
from agentfly_tools_code.sandboxes import SandboxGone, chain_sandbox
from agentfly_tools_code.session import Answer, Session
from agentfly_tools_code.tools import DEFAULT_MAX_OUTPUT, SandboxTool

MAX_FIGURES = 8
MAX_FIGURE_BYTES = 4_000_000
MAX_FIGURE_SIDE = 4096

_FIGURE = re.compile(r"figure-\d{1,9}\.png")
_PNG = b"\x89PNG\r\n\x1a\n"
_DESCRIPTION = """\
Run Python code. Returns what it prints and the value of its last expression. Variables, functions and imports are \
kept from one call to the next."""
_STATELESS = "Run a Python program of its own. Returns what it prints and the value of its last expression."
_FRESH = "The next call begins a new one: variables and imports are lost."


class CodeInterpreter(SandboxTool):
    """Runs Python in the chain's sandbox.

    Args:
        timeout: seconds one call may run. Code that cannot be interrupted costs the session its state.
        stateless: every call begins a new session; files stay.
        images: return matplotlib figures as images, for models that see; otherwise the name of their file.
        max_output: characters that are kept of what a call prints.
        sandbox: options of ``sandbox_spec``.
        name: what the model calls it.
    """

    def __init__(
        self,
        *,
        timeout: float | None = None,
        stateless: bool = False,
        images: bool = False,
        max_output: int = DEFAULT_MAX_OUTPUT,
        sandbox: dict[str, Any] | None = None,
        name: str = "code_interpreter",
    ) -> None:
        self.stateless = stateless
        self.images = images
        description = _STATELESS if stateless else _DESCRIPTION
        super().__init__(
            self._run_code, name=name, description=description, timeout=timeout, max_output=max_output, sandbox=sandbox
        )

    async def _run_code(self, code: str, context: ToolContext) -> ToolResult:
        """Run it.

        Args:
            code: The Python code.
        """
        seconds = self.limit(context)
        async with chain_sandbox(self.spec, context) as chain:
            try:
                async with chain.in_use() as sandbox:
                    session = chain.part("python", lambda: Session("python"))
                    answer = await session.run(
                        sandbox, unfence(code), timeout=seconds, limit=self.max_output, fresh=self.stateless
                    )
                    figures = await self._figures(sandbox, answer)
            except SandboxGone as error:
                return ToolResult(describe_loss(error), error=True)
        return _result(answer, figures, seconds, stateless=self.stateless)

    async def _figures(self, sandbox: Sandbox, answer: Answer) -> list[tuple[str, bytes]]:
        """Names of the figures that a cell left, with their bytes where they are to be shown."""
        names = [n for n in answer.detail.split()[:MAX_FIGURES] if _FIGURE.fullmatch(n)]
        if not self.images:
            return [(name, b"") for name in names]
        figures = []
        for name in names:
            try:
                data = await sandbox.read_file(f"{sandbox.workspace}/{name}", max_bytes=MAX_FIGURE_BYTES + 1)
            except OSError:  # the code removed it again
                continue
            figures.append((name, data if _is_png(data) else b""))
        return figures


def _is_png(data: bytes) -> bool:
    """Whether it begins as a PNG of a size that may be decoded: what lies in a sandbox is not to be trusted."""
    if len(data) > MAX_FIGURE_BYTES or data[:8] != _PNG or data[12:16] != b"IHDR" or len(data) < 24:
        return False
    width, height = struct.unpack(">II", data[16:24])
    return bool(0 < width <= MAX_FIGURE_SIDE and 0 < height <= MAX_FIGURE_SIDE)


def _result(answer: Answer, figures: list[tuple[str, bytes]], seconds: float, *, stateless: bool) -> ToolResult:
    notes = [f"[the figure is in {name}]" for name, data in figures if not data]
    note = describe_end(answer, seconds, what="Python process", lost=_FRESH, stateless=stateless)
    before = "[the Python process ended since the last call: variables and imports are lost]" * answer.lost_before
    text = "\n".join(part for part in (before, answer.text.rstrip("\n"), *notes, note) if part) or "[no output]"
    images = [data for _, data in figures if data]
    error = answer.status != "ok"
    if not images:
        return ToolResult(text, error=error)
    parts: list[TextPart | ImagePart] = [TextPart(type="text", text=text)]
    parts += [ImagePart(type="image", image=data) for data in images]
    return ToolResult(parts, error=error)


code_interpreter = configurable(CodeInterpreter)
