"""A Python session: runs one cell after another in one namespace, as an interpreter would.

Runs in a process that a supervisor forked. The code of a cell may replace anything it finds, so this module keeps its
own references to what it needs, and its bootstrap gives it builtins of its own.
"""

from __future__ import annotations
import __future__

import _ast
import importlib
import io
import linecache
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

from agentfly_tools_code.inside.wire import receive

NONCE = 32
"""Characters that begin each request and its answer."""

_getpid, _exit, _write, _dup2 = os.getpid, os._exit, os.write, os.dup2
_exists, _join = os.path.exists, os.path.join
_invalidate = importlib.invalidate_caches
_format = traceback.format_exception
_raw, _buffered, _text, _modules = io.FileIO, io.BufferedWriter, io.TextIOWrapper, sys.modules
_lines = linecache.cache
_ONLY_AST = _ast.PyCF_ONLY_AST
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag


def main(requests: int, output: int, control: int) -> None:
    """Serve until the requests end; what is printed goes to ``output``, what is reported to ``control``."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    _dup2(null, 0)
    os.close(null)
    _dup2(output, 1)
    _dup2(output, 2)
    _prefer_to_be_killed()
    Session(requests, output, control).serve()


def _prefer_to_be_killed() -> None:
    """Where memory runs out, the kernel is to take this process and not its supervisor."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # not Linux, or not allowed
        return


class Session:
    """One namespace, called ``__main__``, and what it takes to run cells in it."""

    def __init__(self, requests: int, output: int, control: int) -> None:
        self._requests = requests
        self._output = output
        self._control = control
        self._pid = _getpid()
        self._home = os.getcwd()
        self._active = False
        self._cells = 0
        self._figures = 0
        self._flags = 0
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names = main.__dict__
        self._names["__builtins__"] = importlib.import_module("builtins")
        sys.argv = [""]
        sys.path.insert(0, "")
        signal.signal(signal.SIGINT, self._interrupted)
        self._restore_streams(("stdout", "stderr"))

    def serve(self) -> None:
        """Answer one request after another."""
        while True:
            request = receive(self._requests)
            nonce, text = request[:NONCE], request[NONCE:].decode("utf-8", "surrogatepass")
            self._active = True
            try:
                status = self._cell(text)
                self._active = False
            except BaseException:  # an interrupt that came while an error was being reported
                self._active = False
                status = b"error"
            if _getpid() != self._pid:  # a fork that outlived its cell
                _exit(0)
            _write(self._control, nonce + b" " + status + b"\n")

    def _interrupted(self, number: int, frame: Any) -> None:
        if self._active:
            raise KeyboardInterrupt

    def _cell(self, text: str) -> bytes:
        """Run one cell. What it raises is printed, and its status returned."""
        self._restore_streams()
        _invalidate()
        try:
            self._run(text)
            status = b"ok"
        except SystemExit as error:
            status = b"exit %d" % _exit_code(error)
        except BaseException as error:
            status = b"error"
            self._guarded(self._report, error)
        self._guarded(_flush)
        if figures := self._guarded(self._save_figures):
            status += b" " + figures
        return status

    def _run(self, text: str) -> None:
        self._cells += 1
        name = f"<cell {self._cells}>"
        _lines[name] = (len(text), None, text.splitlines(keepends=True), name)
        tree: Any = compile(text, name, "exec", _ONLY_AST | self._flags, dont_inherit=True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        code = compile(tree, name, "exec", self._flags, dont_inherit=True)
        flags = self._flags | code.co_flags & _FUTURES
        shown = None
        if last is not None:
            shown = compile(_ast.Interactive([last]), name, "single", flags, dont_inherit=True)
        self._flags = flags
        exec(code, self._names)
        if shown is not None:
            exec(shown, self._names)

    def _report(self, error: BaseException) -> None:
        """Print the traceback, without the frames of this module, the way the session wants it printed."""
        _hide_own_frames(error)
        if sys.excepthook is sys.__excepthook__:
            print("".join(_format(type(error), error, error.__traceback__)), end="", file=sys.stderr)
        else:
            sys.excepthook(type(error), error, error.__traceback__)

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's value. Where a session has broken what it takes, exceptions are named and no more."""
        try:
            return function(*arguments)
        except BaseException as error:
            names = " and ".join(type(e).__name__ for e in (*arguments, error))
            _write(self._output, f"{names} (the session cannot show more)\n".encode())
            return None

    def _restore_streams(self, broken: Sequence[str] = ()) -> None:
        """Every cell begins with standard output and error that work, whatever those before it closed."""
        _dup2(self._output, 1)
        _dup2(self._output, 2)
        broken = broken or [name for name in ("stdout", "stderr") if _is_closed(getattr(sys, name, None))]
        if not broken:
            return
        buffer = _buffered(_raw(1, "wb", closefd=False))  # one under both keeps what goes to the two in order
        for name in broken:
            errors = "backslashreplace" if name == "stderr" else "surrogateescape"
            stream = _text(buffer, "utf-8", errors, line_buffering=True, write_through=True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def _save_figures(self) -> bytes:
        """Write open matplotlib figures into the workspace and close them; the names of their files."""
        pyplot = _modules.get("matplotlib.pyplot")
        if pyplot is None:
            return b""
        names = []
        for number in pyplot.get_fignums():
            self._figures += 1
            while _exists(_join(self._home, name := f"figure-{self._figures}.png")):
                self._figures += 1
            pyplot.figure(number).savefig(_join(self._home, name), dpi=100)
            names.append(name)
        pyplot.close("all")
        return " ".join(names).encode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _is_closed(stream):
            stream.flush()


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream.closed) if stream is not None else False
    except Exception:  # a stand-in of the session's own, without the attribute
        return False


def _exit_code(error: SystemExit) -> int:
    """What the interpreter would exit with; a text is printed."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _hide_own_frames(error: BaseException) -> None:
    """Take the frames of this module out of the traceback, and out of those of its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _foreign(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _foreign(trace: types.TracebackType | None) -> types.TracebackType | None:
    frames = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__:
            frames.append(trace)
        trace = trace.tb_next
    kept: types.TracebackType | None = None
    for one in reversed(frames):
        kept = types.TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept
