"""What the model is shown of a tool, and which arguments pass."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import functools
import json
import typing
from typing import Annotated, Any, Literal, Optional, Union

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentfly_core.tools import FunctionTool, SchemaTool, tool
from agentfly_core.types import InvalidArguments, Tool, ToolContext, ToolStatus, UsageError

if typing.TYPE_CHECKING:
    from decimal import Decimal

    from agentfly_core import ToolContext as HiddenContext  # noqa: F401


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Box:
    corner: Point
    size: tuple[int, int]


def properties(function: Any) -> dict[str, Any]:
    return tool(function).parameters["properties"]


def test_plain_types_and_required():
    def f(a: int, b: str, c: bool = True, d: float = 1.5): ...

    assert tool(f).parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "boolean", "default": True},
            "d": {"type": "number", "default": 1.5},
        },
        "required": ["a", "b"],
    }


def test_optional_union_literal_list_and_untyped():
    def f(
        a: int | None,
        b: Optional[str] = None,  # noqa: UP045
        c: Union[int, str] = 1,  # noqa: UP007
        d: Literal["u", "v"] = "u",
        e: list = [],  # noqa: B006
        g=3,
    ): ...

    integer_or_null = [{"type": "integer"}, {"type": "null"}]
    shown = properties(f)
    assert shown["a"] == {"anyOf": integer_or_null}
    assert shown["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert shown["c"] == {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 1}
    assert shown["d"] == {"enum": ["u", "v"], "type": "string", "default": "u"}
    assert shown["e"] == {"items": {}, "type": "array", "default": []}
    assert shown["g"] == {"default": 3}
    assert tool(f).parameters["required"] == ["a"]


def test_a_function_without_parameters():
    def f(): ...

    assert tool(f).parameters == {"type": "object", "properties": {}}
    assert tool(f).check_arguments({}) == {}


def test_nested_types_arrive_as_what_the_annotation_says():
    @tool
    def f(box: Box, colour: Colour, day: datetime.date, points: list[Point]):
        return None

    checked = f.check_arguments(
        {
            "box": {"corner": {"x": 1}, "size": [2, 3]},
            "colour": "blue",
            "day": "2024-02-29",
            "points": [{"x": 4, "y": 5}],
        }
    )
    assert checked == {
        "box": Box(Point(x=1), (2, 3)),
        "colour": Colour.BLUE,
        "day": datetime.date(2024, 2, 29),
        "points": [Point(x=4, y=5.0)],
    }
    assert "title" not in json.dumps(f.parameters)


def test_a_property_called_title_is_kept():
    def f(title: str, schema: int, json: int, model_config: int, self_: int = 0): ...

    assert set(properties(f)) == {"title", "schema", "json", "model_config", "self_"}
    assert tool(f).check_arguments({"title": "a", "schema": 1, "json": 2, "model_config": 3}) == {
        "title": "a",
        "schema": 1,
        "json": 2,
        "model_config": 3,
    }


def test_types_defined_in_the_enclosing_function_are_found():
    class Local(BaseModel):
        z: int

    @tool
    def f(one: Local, many: list[Local] = []):  # noqa: B006
        return one.z

    @tool(name="g")
    def with_options(one: Local): ...

    assert f.check_arguments({"one": {"z": 1}}) == {"one": Local(z=1)}
    assert "Local" in with_options.parameters["$defs"]


def test_types_defined_later_in_the_module_are_found():
    assert later.check_arguments({"it": {"n": 1}}) == {"it": Later(n=1)}


def test_return_annotations_are_never_resolved():
    @tool
    def f(a: int) -> Decimal: ...

    assert set(f.parameters["properties"]) == {"a"}


def test_an_annotation_that_exists_for_type_checkers_only_is_a_clear_error():
    @tool
    def f(amount: Decimal): ...

    with pytest.raises(UsageError, match=r"'amount'.*'Decimal'.*cannot be resolved.*type checkers"):
        f.schema()


def test_a_type_without_json_form_is_a_clear_error_that_names_the_parameter():
    class Socket: ...

    @tool
    def f(a: int, where: Socket): ...

    with pytest.raises(UsageError, match="'where'"):
        f.schema()


def test_star_args_are_refused_and_keyword_args_are_open():
    def bad(*words: str): ...

    def good(a: int, **rest: int):
        return rest

    with pytest.raises(UsageError, match=r"\*words"):
        tool(bad).schema()
    made = tool(good)
    assert made.parameters["additionalProperties"] == {"type": "integer"}
    assert made.check_arguments({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(InvalidArguments, match="b: "):
        made.check_arguments({"a": 1, "b": "x"})


def test_context_is_injected_and_never_shown():
    def plain(a: int, ctx: ToolContext):
        return [a, ctx.task_id]

    def optional(a: int, ctx: ToolContext | None = None):
        return [a, ctx.task_id if ctx else None]

    def annotated(a: int, ctx: Annotated[Optional[ToolContext], "note"] = None):  # noqa: UP045
        return [a, ctx.task_id if ctx else None]

    def positional(ctx: ToolContext, a: int, /):
        return [a, ctx.task_id]

    for function in (plain, optional, annotated, positional):
        made = tool(function)
        assert set(made.parameters["properties"]) == {"a"}
        outcome = asyncio.run(made.call({"a": 1}, ToolContext(task_id="t7")))
        assert outcome.content == '[1, "t7"]', function
        refused = asyncio.run(made.call({"a": 1, "ctx": {"task_id": "forged"}}, ToolContext(task_id="t7")))
        assert refused.status is ToolStatus.INVALID_ARGUMENTS


class Shop:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @tool
    def price(self, amount: int) -> int:
        """The price.

        Args:
            amount: How many.
        """
        return amount * self.factor

    @tool
    @classmethod
    def kind(cls, amount: int) -> str:
        return f"{cls.__name__}{amount}"

    @tool
    @staticmethod
    def twice(amount: int) -> int:
        return amount * 2

    @staticmethod
    @tool
    async def thrice(amount: int) -> int:
        return amount * 3


def test_methods_become_bound_tools():
    one, ten = Shop(1), Shop(10)
    assert isinstance(ten.price, Tool)
    assert ten.price.parameters["properties"] == {"amount": {"type": "integer", "description": "How many."}}
    for bound, wanted in (
        (one.price, "4"),
        (ten.price, "40"),
        (Shop.kind, "Shop4"),
        (ten.kind, "Shop4"),
        (ten.twice, "8"),
        (Shop.thrice, "12"),
    ):
        assert asyncio.run(bound.call({"amount": 4}, ToolContext())).content == wanted
    assert (ten.price(4), Shop.twice(4), Shop.kind(4)) == (40, 8, "Shop4")
    with pytest.raises(UsageError, match="is a method: take it from an instance"):
        Shop.price.schema()


def test_partials_and_callable_objects():
    def scaled(factor: int, amount: int) -> int:
        return factor * amount

    class Adder:
        async def __call__(self, a: int) -> int:
            return a + 1

    partial = FunctionTool(functools.partial(scaled, 3), name="scaled")
    assert asyncio.run(partial.call({"amount": 5}, ToolContext())).content == "15"
    adder = FunctionTool(Adder(), name="adder")
    assert asyncio.run(adder.call({"a": 5}, ToolContext())).content == "6"


def test_options_replace_what_the_function_says():
    schema = {"type": "object", "properties": {"q": {"type": "string", "maxLength": 3}}, "required": ["q"]}

    @tool(name="find", description="Find it.", parameters=schema, exclusive=True, timeout=3, max_concurrency=2)
    def search(q):
        """Ignored."""
        return q

    assert search.schema() == {
        "type": "function",
        "function": {"name": "find", "description": "Find it.", "parameters": schema},
    }
    assert (search.exclusive, search.timeout, search.max_concurrency) == (True, 3, 2)
    assert asyncio.run(search.call({"q": "abc"}, ToolContext())).content == "abc"
    assert asyncio.run(search.call({"q": "abcd"}, ToolContext())).status is ToolStatus.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    "options", [{"name": "a b"}, {"name": "x" * 65}, {"timeout": 0}, {"max_concurrency": 0}, {"parameters": {}}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(UsageError):
        tool(**options)(lambda: None)


def test_a_lambda_needs_a_name():
    with pytest.raises(UsageError, match="<lambda>"):
        tool(lambda: None)
    assert FunctionTool(lambda: None, name="nothing").name == "nothing"


def test_the_kind_by_which_local_plugins_are_found():
    assert FunctionTool.__agentfly_kind__ == SchemaTool.__agentfly_kind__ == "tools"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": "3"}, 'n: Input should be a valid integer, got "3"'),
        ({"n": True}, "n: Input should be a valid integer, got true"),
        ({"n": 3.5}, "n: "),
        ({}, "n: required, but missing"),
        ({"n": 1, "ratoi": 2.0}, "ratoi: no such argument; did you mean ratio?"),
        ({"n": 1, "zzz": 2}, "zzz: no such argument; it takes n, ratio"),
        ({"n": 1, "ratio": float("nan")}, "no JSON"),
        ({"n": 10**5000}, "no JSON"),
        ({"n": 1, "ratio": object()}, "no JSON"),
    ],
)
def test_wrong_arguments_are_explained_to_the_model(arguments, said):
    @tool
    def f(n: int, ratio: float = 1.0): ...

    with pytest.raises(InvalidArguments) as caught:
        f.check_arguments(arguments)
    assert str(caught.value).startswith("Invalid arguments for f: ")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_integer_is_a_float_and_hostile_text_cannot_blow_up_the_message():
    @tool
    def f(ratio: float): ...

    assert f.check_arguments({"ratio": 2}) == {"ratio": 2.0}
    with pytest.raises(InvalidArguments) as caught:
        f.check_arguments({"ratio": "x" * 10**6} | {f"k{i}": 1 for i in range(1000)})
    assert len(str(caught.value)) < 1500
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        f.check_arguments({"ratio": deep})


def test_bools_are_no_integers_in_nested_models_either():
    @tool
    def f(p: Point): ...

    with pytest.raises(InvalidArguments, match=r"p\.x"):
        f.check_arguments({"p": {"x": True}})


def test_constraints_of_field_hold():
    @tool
    def f(n: Annotated[int, Field(ge=1, le=6, description="Pips.")]): ...

    assert f.parameters["properties"]["n"] == {"type": "integer", "minimum": 1, "maximum": 6, "description": "Pips."}
    with pytest.raises(InvalidArguments):
        f.check_arguments({"n": 7})


def test_defaults_are_the_functions_own():
    seen = []

    @tool
    def f(a: int = 1, rest: list = seen):
        return rest is seen

    assert asyncio.run(f.call({}, ToolContext())).content == "true"


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_schema_tool_checks_and_never_coerces():
    made = SchemaTool(lambda arguments, context: arguments["n"] + 1, name="inc", description="Add.", parameters=SCHEMA)
    assert isinstance(made, Tool)
    assert made.schema()["function"] == {"name": "inc", "description": "Add.", "parameters": SCHEMA}
    assert asyncio.run(made.call({"n": 2, "tags": ["a"]}, ToolContext())).content == "3"
    for wrong, said in (({"n": "2"}, "n: '2' is not of type"), ({"n": True}, "n: "), ({}, "'n' is a required")):
        outcome = asyncio.run(made.call(wrong, ToolContext()))
        assert outcome.status is ToolStatus.INVALID_ARGUMENTS
        assert said in outcome.content


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": "object", "properties": {"a": {"type": "intger"}}}])
def test_schema_tool_refuses_a_bad_schema(schema):
    with pytest.raises(UsageError, match="parameters"):
        SchemaTool(lambda arguments, context: None, name="t", description="", parameters=schema)


def test_schema_tool_fetches_no_remote_schema():
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}
    made = SchemaTool(lambda arguments, context: None, name="t", description="", parameters=schema)
    outcome = asyncio.run(made.call({"a": 1}, ToolContext()))
    assert outcome.status is ToolStatus.FAILED
    assert "Unresolvable" in outcome.content


TYPES = st.sampled_from(
    [int, float, str, bool, list[int], dict[str, float], int | None, Literal["a", "b"], tuple[int, str], list, Point]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "y", "a"]), inner, max_size=2),
    max_leaves=4,
)


@given(annotation=TYPES, value=JSON_VALUES)
def test_what_passes_the_check_fits_the_shown_schema(annotation, value):
    """The schema is valid, and the check is never laxer than what the model was shown."""

    def f(a): ...

    f.__annotations__["a"] = annotation
    made = tool(f)
    jsonschema.Draft202012Validator.check_schema(made.parameters)
    fits = jsonschema.Draft202012Validator(made.parameters).is_valid({"a": value})
    try:
        made.check_arguments({"a": value})
    except InvalidArguments:
        # Stricter in one point: JSON Schema takes 3.0 for an integer.
        assert not fits or ".0" in json.dumps(value)
    else:
        assert fits


@tool
def later(it: Later): ...


class Later(BaseModel):
    n: int
