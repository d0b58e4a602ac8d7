"""Arguments made from a JSON Schema: good ones, and ones that it forbids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WRONG: tuple[Any, ...] = ({"unexpected": [None]}, [[{"unexpected": 1}]])
"""Values that no coercion turns into a text, a number or a truth value."""
HOSTILE_TEXTS = (
    *("", " ", "\n", "\x00", "\ud800", "{", "%s {0}", "../../etc/passwd", "'; --", "\U0001f642", "-1", "nan"),
    *("<|im_end|>", "a" * 20_000),
)
"""Texts a model may write."""
DEPTH = 8


def valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether the schema allows the value."""
    import jsonschema

    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def sample_arguments(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments that the schema allows, optional ones left out; None where this simple search finds none."""
    value = _sample(schema, schema, DEPTH)
    return value if isinstance(value, dict) and valid(schema, value) else None


def forbidden_arguments(schema: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is wrong, and arguments that are otherwise ``base``."""
    for name in schema.get("required", ()):
        yield f"without {name!r}", {k: v for k, v in base.items() if k != name}
    for name in schema.get("properties", {}):
        for value in WRONG:
            arguments = {**base, name: value}
            if not valid(schema, arguments):
                yield f"with {name}={value!r}", arguments
                break


def _sample(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth == 0:
        return "a"
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _sample({**root.get("definitions", {}), **root.get("$defs", {})}.get(name), root, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _sample(schema[key][0], root, depth - 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _sample(properties.get(name), root, depth - 1) for name in schema.get("required", ())}
    if kind == "array":
        return [_sample(schema.get("items"), root, depth - 1)] * int(schema.get("minItems", 0))
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(low, schema.get("maximum", low))
    if kind == "string":
        return "a" * max(1, int(schema.get("minLength", 1)))
    return {"boolean": True, "null": None}.get(kind)
