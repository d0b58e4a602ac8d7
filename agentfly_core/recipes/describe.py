"""The recipe's schema as a flat table, read off the pydantic models and the docstrings below their fields."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from agentfly_core.recipes import schema
from agentfly_core.recipes.schema import Recipe, Section


def describe_schema() -> list[dict[str, str]]:
    """One row a key, dotted, in the order of the models: key, type, default and meaning."""
    return list(_rows(Recipe, None, "", _docstrings()))


def _rows(
    model: type[Section], defaults: Section | None, prefix: str, meanings: dict[tuple[str, str], str]
) -> Iterator[dict[str, str]]:
    """``defaults`` is the section that stands where the recipe leaves it out; None where it must be written."""
    for name, field in model.model_fields.items():
        inner, listed = section_in(field.annotation)
        default = field.default if defaults is None else getattr(defaults, name)
        own = (meanings[c.__name__, name] for c in model.__mro__ if (c.__name__, name) in meanings)
        yield {
            "key": f"{prefix}{name}",
            "type": _type(field.annotation),
            "default": _shown(default),
            "meaning": next(own, _first_line(inner) if inner else ""),
        }
        if inner is not None:
            below = default if isinstance(default, Section) else None
            yield from _rows(inner, below, f"{prefix}{name}.{'N.' if listed else ''}", meanings)


def section_in(annotation: Any) -> tuple[type[Section] | None, bool]:
    """The section that an annotation holds, and whether in a list."""
    if inspect.isclass(annotation) and issubclass(annotation, Section):
        return annotation, False
    for part in get_args(annotation):
        found, listed = section_in(part)
        if found:
            return found, listed or get_origin(annotation) is list
    return None, False


def _docstrings() -> dict[tuple[str, str], str]:
    """(class, field) -> the text that follows the field in the source of the schema."""
    found = {}
    for node in ast.parse(inspect.getsource(schema)).body:
        if isinstance(node, ast.ClassDef):
            for field, after in zip(node.body, node.body[1:], strict=False):
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if documented and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    found[node.name, field.target.id] = " ".join(str(after.value.value).split())  # type: ignore[attr-defined]
    return found


def _first_line(model: type[Section]) -> str:
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _type(annotation: Any) -> str:
    inner, listed = section_in(annotation)
    if inner is not None:
        return "list of sections" if listed else "section"
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is typing.Annotated:
        return _type(get_args(annotation)[0])
    parts = [_type(part) for part in get_args(annotation)]
    if get_origin(annotation) is list:
        return f"list of {parts[0]}"
    if get_origin(annotation) is tuple:
        return f"[{', '.join(parts)}]"
    if get_origin(annotation) is dict:
        return "mapping"
    if parts:
        return " | ".join(parts)
    names = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _shown(default: Any) -> str:
    if default is PydanticUndefined:
        return "(required)"
    if isinstance(default, Section):
        return ""
    return "null" if default is None else str(default)
