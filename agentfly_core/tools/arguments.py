"""What arguments a tool takes: from a function's signature (pydantic) or from a JSON Schema (jsonschema).

Arguments are what a model wrote as JSON and are taken at their word: ``"3"`` is no integer, ``true`` is no number,
``3`` is a float as well. Types that JSON lacks (dates, enums, tuples, dataclasses) are read from their JSON form.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from agentfly_core.types.errors import InvalidArguments, UsageError, nearest

MAX_ERRORS = 8
MAX_VALUE_CHARS = 80


class Arguments(Protocol):
    """A JSON Schema (an object) and the check that belongs to it."""

    schema: dict[str, Any]

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments to call with; raises ``InvalidArguments``."""
        ...


class SignatureArguments:
    """The arguments of a function. Those that a call leaves out are left to the function's own defaults."""

    def __init__(
        self, tool: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any], texts: Mapping[str, str]
    ) -> None:
        named = {f"p{i}": p for i, p in enumerate(parameters) if p.kind is not p.VAR_KEYWORD}
        rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._tool = tool
        self._fields = {key: p.name for key, p in named.items()}
        fields: dict[str, Any] = {k: _field(p, hints.get(p.name, Any), texts.get(p.name)) for k, p in named.items()}
        try:
            base = _Closed if rest is None else _open_model(hints.get(rest.name, Any))
            self._model: type[BaseModel] = create_model("Arguments", __base__=base, **fields)
            self.schema = _json_schema(self._model)
        except (PydanticUserError, TypeError, NameError) as error:
            raise UsageError(f"tool {tool!r}: {_culprit(parameters, hints)} has no JSON form: {error}") from error

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The validated values, only of the arguments given."""
        text = _dumps(self._tool, arguments)
        try:
            values = self._model.model_validate_json(text, strict=True)
        except ValidationError as error:
            known = list(self._fields.values())
            lines = [_explain(e, known) for e in error.errors(include_url=False, include_context=False)]
            raise _invalid(self._tool, lines) from error
        given = {name: getattr(values, key) for key, name in self._fields.items() if key in values.model_fields_set}
        return {**given, **(values.model_extra or {})}


class SchemaArguments:
    """Arguments described by a JSON Schema: checked, never changed.

    Raises:
        UsageError: it is no valid JSON Schema of an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry

        self._tool = tool
        self.schema = dict(schema)
        if self.schema.get("type") != "object":
            raise UsageError(f'tool {tool!r}: the schema of its parameters must have "type": "object"')
        kind = validator_for(self.schema, default=Draft202012Validator)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            raise UsageError(f"tool {tool!r}: {error.json_path} of its parameters: {error.message}") from error
        self._validator = kind(self.schema, registry=Registry())  # an empty registry fetches nothing

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are."""
        _dumps(self._tool, arguments)
        errors = sorted(self._validator.iter_errors(dict(arguments)), key=lambda e: e.json_path)
        if errors:
            raise _invalid(self._tool, [f"{e.json_path.removeprefix('$.')}: {_short(e.message)}" for e in errors])
        return dict(arguments)


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _QuietSchema(GenerateJsonSchema):
    """A default that JSON cannot express is left out of the schema; no warning is due."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


def _open_model(hint: Any) -> type[BaseModel]:
    """A model that takes any further arguments of this type, for ``**rest``."""
    body = {"__annotations__": {"__pydantic_extra__": dict[str, hint]}, "__module__": __name__}
    return type("Open", (BaseModel,), body, extra="allow")


def _field(parameter: inspect.Parameter, hint: Any, text: str | None) -> tuple[Any, Any]:

    default = ... if parameter.default is parameter.empty else parameter.default
    described: dict[str, Any] = (
        {"description": text} if text else {}
    )  # a None would hide the description of an Annotated type
    return hint, Field(default, alias=parameter.name, **described)


def _json_schema(model: type[BaseModel]) -> dict[str, Any]:

    schema: dict[str, Any] = _tidy(model.model_json_schema(schema_generator=_QuietSchema))
    if schema.get("additionalProperties") is False:
        del schema["additionalProperties"]  # it goes without saying, and would cost tokens in every prompt
    return {"type": "object", "properties": {}, **schema}


def _tidy(schema: Any) -> Any:
    """Without the titles that pydantic derives from names: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "patternProperties"):
            tidy[key] = {name: _tidy(part) for name, part in value.items()}
        elif key in ("default", "const", "enum", "examples", "required"):
            tidy[key] = value
        elif key != "title":
            tidy[key] = _tidy(value)
    return tidy


def _culprit(parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> str:

    for parameter in parameters:
        try:
            TypeAdapter(hints.get(parameter.name, Any)).json_schema()
        except (PydanticUserError, TypeError, NameError):
            return f"the type of parameter {parameter.name!r}"
    return "its signature"


def _dumps(tool: str, arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(tool, [f"they are no JSON: {error}"]) from error


def _explain(error: Any, known: list[str]) -> str:
    where = ".".join(map(str, error["loc"])) or "arguments"
    if error["type"] == "missing":
        return f"{where}: required, but missing"
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        guess = nearest(where, known)
        hint = f"did you mean {guess[0]}?" if guess else f"it takes {', '.join(known) or 'no arguments'}"
        return f"{where}: no such argument; {hint}"
    return f"{where}: {error['msg']}, got {_short(json.dumps(error['input'], ensure_ascii=False, default=str))}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 3]}..."


def _invalid(tool: str, lines: list[str]) -> InvalidArguments:
    more = [f"and {len(lines) - MAX_ERRORS} more"] if len(lines) > MAX_ERRORS else []
    return InvalidArguments(f"Invalid arguments for {tool}: " + "; ".join([*lines[:MAX_ERRORS], *more]))
