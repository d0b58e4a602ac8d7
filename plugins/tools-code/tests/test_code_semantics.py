"""A session does what a plain interpreter does with the same code."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from agentfly_tools_code.interpreter import CodeInterpreter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfly_core.resources import ResourceManager
from agentfly_core.types import ToolContext, text_of

NAMES = ("a", "b", "c")
PRELUDE = "a, b, c = 1, 2, 3"

names = st.sampled_from(NAMES)
numbers = st.integers(-5, 5).map(str)
atoms = st.one_of(names, numbers)


def _binary(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from(["+", "-", "*", "//", "%", "<", "=="]), parts),
        st.builds("sum([{} for i in range(3)])".format, st.one_of(parts, st.just("i"))),
        st.builds("(lambda x: x + {})({})".format, parts, parts),
        st.builds("f({})".format, parts),
    )


expressions = st.recursive(atoms, _binary, max_leaves=5)
statements = st.one_of(
    st.builds("{} = {}".format, names, expressions),
    st.builds("{} += {}".format, names, expressions),
    st.builds("print({}, {}, end={!r})".format, expressions, expressions, st.sampled_from(["\n", "", ";\n"])),
    st.builds("def f(x):\n    return x * {} if x else {}".format, atoms, atoms),
    st.builds("def f(x):\n    global {0}\n    {0} = x\n    return {0}".format, names),
    st.builds("for {} in range({}):\n    print({})".format, names, numbers, expressions),
    st.builds(
        "try:\n    print({})\nexcept Exception as error:\n    print(type(error).__name__, error)".format, expressions
    ),
    st.builds("class C:\n    value = {}\n    def get(self): return self.value + {}".format, atoms, atoms),
    st.just("print(C().get() if 'C' in globals() else None)"),
    st.builds("with contextlib.suppress(Exception):\n    print({})".format, expressions),
    st.builds("import {} as m\nprint(m.__name__)".format, st.sampled_from(["math", "json", "collections"])),
    st.builds("del {0}\n{0} = 4".format, names),
    st.just("print(sorted(n for n in globals() if not n.startswith('_')), __name__)"),
    st.builds("assert {}, 'no'".format, expressions),
)


class Interpreter:
    """Sessions of one chain, each begun by a first cell."""

    def __init__(self, resources: ResourceManager) -> None:
        self._loop = asyncio.new_event_loop()
        self._scope = contextlib.AsyncExitStack()
        self._context = ToolContext(resources=resources, scope=self._scope)

    def run(self, cells: list[str]) -> tuple[str, str]:
        """What the cells print, and the last line of the first traceback, after which nothing is run."""
        printed = ""
        for number, cell in enumerate(cells):
            before, trace, error = self._output(cell, fresh=number == 0).partition(TRACE)
            printed += before
            if trace:
                return printed, _last_line(error)
        return printed, ""

    def close(self) -> None:
        self._loop.run_until_complete(self._scope.aclose())
        self._loop.close()

    def _output(self, cell: str, *, fresh: bool) -> str:
        """As it came: the tool cuts line ends off, so a mark is printed behind."""
        tool = FRESH if fresh else SAME
        outcome = self._loop.run_until_complete(tool.call({"code": f"{cell}\nprint('|END|', end='')"}, self._context))
        return text_of(outcome.content).removesuffix("|END|")


FRESH = CodeInterpreter(max_output=1_000_000, stateless=True)
SAME = CodeInterpreter(max_output=1_000_000)
TRACE = "Traceback (most recent call last):\n"


@pytest.fixture(scope="module")
def interpreter(resources: ResourceManager) -> Iterator[Interpreter]:
    made = Interpreter(resources)
    yield made
    made.close()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cells=st.lists(st.lists(statements, min_size=1, max_size=4).map("\n".join), min_size=1, max_size=4))
def test_cells_print_what_a_plain_interpreter_prints(interpreter: Interpreter, cells: list[str]) -> None:
    cells = [f"import contextlib\n{PRELUDE}\ndef f(x):\n    return x", *cells]
    plain = subprocess.run([sys.executable, "-I", "-c", "\n".join(cells)], capture_output=True, text=True, timeout=60)
    assert interpreter.run(cells) == (plain.stdout, _last_line(plain.stderr))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
