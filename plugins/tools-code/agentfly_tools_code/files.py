"""``read_file``, ``write_file``, ``edit_file``, ``list_files``, ``search_files``: the files of the chain's sandbox.

Every path is resolved where the files are, with all links, and must lie in the workspace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from agentfly_core.tools import configurable
from agentfly_core.types import Sandbox, SandboxProcess, ToolContext, ToolResult
from agentfly_tools_code.frames import BadReply, end_quietly, receive, send
from agentfly_tools_code.notes import describe_loss
from agentfly_tools_code.sandboxes import SandboxGone, chain_sandbox
from agentfly_tools_code.sources import command
from agentfly_tools_code.tools import DEFAULT_MAX_OUTPUT, SandboxTool

MAX_ENTRIES = 500
MAX_UNDO = 20
"""Of all files together."""
_MAX_ANSWER = 16_000_000


class _Failed(Exception):
    """The operation was refused; the text is for the model."""


class _Undo:
    """What files held before each change, oldest first: (path, base64 or None where there was none)."""

    def __init__(self) -> None:
        self._changes: list[tuple[str, str | None]] = []

    def keep(self, path: str, before: str | None) -> None:
        self._changes = [*self._changes, (path, before)][-MAX_UNDO:]

    def last(self, path: str) -> tuple[str, str | None] | None:
        return next((change for change in reversed(self._changes) if change[0] == path), None)

    def forget(self, change: tuple[str, str | None]) -> None:
        index = max(i for i, one in enumerate(self._changes) if one is change)
        del self._changes[index]


class FileTool(SandboxTool):
    """One file operation.

    Args:
        timeout: seconds that it may take.
        max_output: characters that are kept of its result.
        sandbox: options of ``sandbox_spec``.
    """

    kind: str
    what: str
    changes = False

    def __init__(
        self,
        *,
        timeout: float | None = None,
        max_output: int = DEFAULT_MAX_OUTPUT,
        sandbox: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            self._act,
            name=self.kind,
            description=self.what,
            timeout=timeout,
            max_output=max_output,
            sandbox=sandbox,
            exclusive=self.changes,
        )

    _act: Callable[..., Any]

    async def _in_sandbox(self, context: ToolContext, work: Callable[[Callable[..., Any], _Undo], Any]) -> ToolResult:
        """The result of ``work(do, undo)``, where ``do(operation, ...)`` carries one out."""
        async with chain_sandbox(self.spec, context) as chain:

            async def do(operation: str, **arguments: Any) -> dict[str, Any]:
                worker = chain.part("files", _Worker)
                async with chain.in_use() as sandbox:
                    return await worker.perform(sandbox, {"do": operation, **arguments}, self.limit(context))

            try:
                return ToolResult(await work(do, chain.part("undo", _Undo)))
            except _Failed as error:
                return ToolResult(f"Error: {error}", error=True)
            except SandboxGone as error:
                return ToolResult(describe_loss(error), error=True)


class _Worker:
    """A process in the sandbox that carries operations out, one at a time. Begun anew where one went wrong."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: SandboxProcess | None = None

    async def perform(self, sandbox: Sandbox, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            _Failed: there is none, or it is an error.
        """
        async with self._lock:
            done = False
            try:
                if self._process is None:
                    self._process = await sandbox.open(command(sandbox.python, "files", sandbox.workspace))
                await send(self._process, request)
                answer = await asyncio.wait_for(receive(self._process, _MAX_ANSWER), seconds)
                done = True
            except asyncio.TimeoutError:
                raise _Failed(f"it took longer than {seconds:g} s") from None
            except (EOFError, BrokenPipeError, BadReply):
                raise _Failed("it broke off; try it again") from None
            finally:
                if not done:
                    await end_quietly(self._process)
                    self._process = None
        if "error" in answer:
            raise _Failed(str(answer["error"]))
        return answer


class ReadFile(FileTool):
    """Reads text."""

    kind = "read_file"
    what = "Read a text file of the workspace, whole or some lines of it."

    async def _act(
        self,
        path: str,
        context: ToolContext,
        start_line: Annotated[int, Field(ge=1)] = 1,
        end_line: Annotated[int, Field(ge=1)] | None = None,
    ) -> ToolResult:
        """Read it.

        Args:
            path: Path in the workspace.
            start_line: First line, counted from 1.
            end_line: Last line.
        """

        async def work(do: Callable[..., Any], undo: _Undo) -> str:
            answer = await do("read", path=path, start=start_line, end=end_line)
            return str(answer["text"]) or "[empty]"

        return await self._in_sandbox(context, work)


class WriteFile(FileTool):
    """Writes text."""

    kind = "write_file"
    what = "Write a text file of the workspace. An existing one is overwritten; missing folders are made."
    changes = True

    async def _act(self, path: str, content: str, context: ToolContext) -> ToolResult:
        """Write it.

        Args:
            path: Path in the workspace.
            content: The whole new content.
        """

        async def work(do: Callable[..., Any], undo: _Undo) -> str:
            answer = await do("write", path=path, text=content)
            undo.keep(path, answer["before"])
            return f"[{'wrote' if answer['before'] is None else 'overwrote'} {path}: {answer['size']} bytes]"

        return await self._in_sandbox(context, work)


class EditFile(FileTool):
    """Replaces text exactly, or takes a change back."""

    kind = "edit_file"
    what = (
        "Replace text in a file of the workspace. `old` must match exactly and occur once, unless `all` is set. "
        "With `undo`, the last change of the file is taken back instead."
    )
    changes = True

    async def _act(
        self, path: str, context: ToolContext, old: str = "", new: str = "", all: bool = False, undo: bool = False
    ) -> ToolResult:
        """Edit it.

        Args:
            path: Path in the workspace.
            old: The text to replace.
            new: What takes its place.
            all: Replace every occurrence.
            undo: Take back the last write or edit of this file.
        """

        async def replace(do: Callable[..., Any], history: _Undo) -> str:
            if not old:
                raise _Failed("`old` is empty: give the text to replace")
            answer = await do("edit", path=path, old=old, new=new, every=all)
            history.keep(path, answer["before"])
            count = answer["count"]
            where = f"in line {answer['line']}" if count == 1 else f"{count} times"
            return f"[replaced {where} of {path}]" if count == 1 else f"[replaced {where} in {path}]"

        async def take_back(do: Callable[..., Any], history: _Undo) -> str:
            change = history.last(path)
            if change is None:
                raise _Failed(f"there is no change of {path} to take back")
            await do("restore", path=path, data=change[1])
            history.forget(change)
            return f"[took back the last change of {path}]" if change[1] is not None else f"[removed {path} again]"

        return await self._in_sandbox(context, take_back if undo else replace)


class ListFiles(FileTool):
    """Lists a folder."""

    kind = "list_files"
    what = "List the files in a folder of the workspace with their sizes in bytes. Folders end in '/', links in '@'."

    async def _act(self, context: ToolContext, path: str = ".", recursive: bool = False) -> ToolResult:
        """List them.

        Args:
            path: Folder in the workspace.
            recursive: Also what lies in its folders.
        """

        async def work(do: Callable[..., Any], undo: _Undo) -> str:
            answer = await do("list", path=path, recursive=recursive, limit=MAX_ENTRIES)
            lines = [name if name.endswith("/") else f"{name} {size}" for name, size in answer["entries"]]
            return _listing(lines, answer["more"])

        return await self._in_sandbox(context, work)


class SearchFiles(FileTool):
    """Searches text."""

    kind = "search_files"
    what = "Search the text files of the workspace for a regular expression (Python's), line by line."

    async def _act(
        self, pattern: str, context: ToolContext, path: str = ".", names: str = "*", limit: int = 100
    ) -> ToolResult:
        """Search them.

        Args:
            pattern: The regular expression.
            path: Folder to search.
            names: Only in files with such names, as in `*.py`.
            limit: Stop after so many lines.
        """

        async def work(do: Callable[..., Any], undo: _Undo) -> str:
            most = max(1, min(limit, MAX_ENTRIES))
            answer = await do("search", pattern=pattern, path=path, names=names, limit=most)
            lines = [f"{name}:{number}: {line}" for name, number, line in answer["matches"]]
            return _listing(lines, answer["more"])

        return await self._in_sandbox(context, work)


def _listing(lines: list[str], more: bool) -> str:
    if not lines:
        return "[nothing found]"
    return "\n".join([*lines, f"[only the first {len(lines)} are shown]"] if more else lines)


read_file = configurable(ReadFile)
write_file = configurable(WriteFile)
edit_file = configurable(EditFile)
list_files = configurable(ListFiles)
search_files = configurable(SearchFiles)
