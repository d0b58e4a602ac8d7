"""``check_tool`` passes good tools and finds what is wrong with others."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from agentfly_core import ToolContext, tool
from agentfly_core.plugins import Plugins
from agentfly_core.testing import check_tool
from agentfly_core.types import InvalidArguments, ToolOutcome, ToolStatus

CALLS = {"calculator": {"expression": "47*86+12"}, "answer": {"answer": "4"}}


@tool
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"Hello {name}! " * times


def one(kind):
    """A schema with one required argument, ``x``."""
    return {"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]}


class Plain:
    """A tool by hand, good unless a subclass spoils it."""

    name = "plain"
    description = "Says hello."
    exclusive = False
    parameters = one("integer")

    def schema(self):
        own = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": own}

    def check_arguments(self, arguments):
        if type(arguments.get("x")) is not int:
            raise InvalidArguments("Error: x must be an integer.")
        return arguments

    async def call(self, arguments, context):
        try:
            self.check_arguments(arguments)
        except InvalidArguments as error:
            return ToolOutcome(self.name, ToolStatus.INVALID_ARGUMENTS, str(error))
        return await self.run(arguments)

    async def run(self, arguments):
        await asyncio.sleep(0)
        return ToolOutcome(self.name, ToolStatus.OK, "hello")


@pytest.mark.parametrize("name", sorted(CALLS))
def test_built_in_tools_pass(name):
    built_in = Plugins.load(warn=False).registry("tools").get(f"core:{name}")
    check_tool(built_in, calls=[CALLS[name]])


def test_good_tools_pass():
    check_tool(greet, calls=[{"name": "Ada"}, {"name": "Ada", "times": 2}])
    check_tool(Plain(), calls=[{"x": 1}])


def test_without_calls_nothing_is_run():
    ran = []

    @tool
    def erase(path: str) -> str:
        """Erase a file."""
        ran.append(path)
        return "gone"

    check_tool(erase)
    assert ran == []


def test_it_works_inside_a_running_loop():
    async def inside():
        check_tool(greet, calls=[{"name": "Ada"}])

    asyncio.run(inside())


def test_what_is_no_tool(found):
    with found("it lacks name, description"):
        check_tool(len)  # type: ignore[arg-type]


def test_every_violation_is_listed(found):
    class Broken(Plain):
        name = "two words"
        description = ""
        exclusive = None

    with found("'two words' is no name", "it is empty", "None is no bool") as caught:
        check_tool(Broken())
    assert "breaks its contract, 3 violations:" in str(caught.value)
    assert "mend: write a docstring" in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"type": "objekt"}, "no valid JSON Schema"),
        ({"type": "string"}, "not of type object"),
        ({"type": "object", "default": {1, 2}}, "it raised TypeError"),
    ],
)
def test_wrong_schemas(parameters, text, found):
    broken = Plain()
    broken.parameters = parameters
    with found(text):
        check_tool(broken)


def test_a_schema_that_is_shown_otherwise(found):
    class Broken(Plain):
        def schema(self):
            return self.parameters

    with found("it gives {'type': 'object'"):
        check_tool(Broken())


def test_arguments_that_are_not_checked(found):
    class Broken(Plain):
        def check_arguments(self, arguments):
            return arguments

    with found("it accepts what its own schema forbids", "wrong arguments gave the status 'ok'"):
        check_tool(Broken())


def test_the_wrong_error_for_wrong_arguments(found):
    class Broken(Plain):
        def check_arguments(self, arguments):
            return {"x": int(arguments["x"])}

    with found("it raised KeyError where InvalidArguments is meant", "it raised TypeError"):
        check_tool(Broken())


def test_hostile_texts(found):
    class Broken(Plain):
        parameters = one("string")

        def check_arguments(self, arguments):
            if not isinstance(arguments.get("x"), str):
                raise InvalidArguments("Error: x must be text.")
            return {"x": arguments["x"].encode()}

    with found("it raised UnicodeEncodeError where InvalidArguments is meant"):
        check_tool(Broken())


def returning(value):
    class Returning(Plain):
        async def run(self, arguments):
            return value

    return Returning()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hello", "it returned 'hello', no ToolOutcome"),
        (ToolOutcome("other", ToolStatus.OK, "hello"), "the outcome is named 'other'"),
        (ToolOutcome("plain", ToolStatus.OK, {"a": 1}), "the content is {'a': 1}"),
        (ToolOutcome("plain", ToolStatus.OK, "hello", metrics={"n": float("nan")}), "not finite numbers"),
        (ToolOutcome("plain", ToolStatus.FAILED, "Error: no."), "the call ended failed: 'Error: no.'"),
    ],
)
def test_wrong_outcomes(value, text, found):
    with found(text):
        check_tool(returning(value), calls=[{"x": 1}])


def test_calls_that_the_schema_forbids(found):
    with found("its schema forbids them"):
        check_tool(greet, calls=[{"nobody": 1}])


def test_a_call_that_raises(found):
    class Broken(Plain):
        async def run(self, arguments):
            raise ValueError("no such thing")

    with found("it raised ValueError: no such thing"):
        check_tool(Broken(), calls=[{"x": 1}])


def test_a_call_that_changes_its_arguments(found):
    class Broken(Plain):
        async def run(self, arguments):
            arguments["x"] = 2
            return ToolOutcome(self.name, ToolStatus.OK, "hello")

    with found("it changed its arguments"):
        check_tool(Broken(), calls=[{"x": 1}])


def test_a_call_that_blocks_the_loop(found):
    class Broken(Plain):
        async def run(self, arguments):
            time.sleep(0.7)  # noqa: ASYNC251  (that it blocks is the fault)
            return ToolOutcome(self.name, ToolStatus.OK, "hello")

    with found("it blocks the event loop"):
        check_tool(Broken(), calls=[{"x": 1}])


def test_a_call_that_swallows_cancellation(found):
    class Broken(Plain):
        async def run(self, arguments):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
            return ToolOutcome(self.name, ToolStatus.OK, "hello")

    with found("it swallows cancellation"):
        check_tool(Broken(), calls=[{"x": 1}])


def test_a_call_that_hangs(found):
    class Broken(Plain):
        async def run(self, arguments):
            await asyncio.sleep(3600)

    with found("TimeoutError: it did not end within 0.2 s"):
        check_tool(Broken(), calls=[{"x": 1}], timeout=0.2)


def test_the_context_reaches_the_call():
    @tool
    def whoami(context: ToolContext) -> str:
        """Who is calling."""
        return str(context.fields["user"])

    check_tool(whoami, calls=[{}], context=ToolContext(fields={"user": "Ada"}))
