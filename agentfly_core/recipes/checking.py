"""Plain data to a ``Recipe``, or one message that lists everything wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agentfly_core.recipes.describe import describe_schema, section_in
from agentfly_core.recipes.schema import Recipe, Section
from agentfly_core.types.errors import UsageError, nearest


def check_recipe(data: Mapping[str, Any], *, origin: str = "recipe", overridden: Iterable[str] = ()) -> Recipe:
    """The validated recipe.

    Args:
        origin: where the data came from, for messages.
        overridden: dotted paths set on the command line; an error there names the override as its place.

    Raises:
        UsageError: unknown keys (with the nearest name), missing keys, wrong types or values.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        lines = [_line(details, list(overridden)) for details in error.errors()]
    if len(lines) == 1:
        raise UsageError(f"{origin}: {lines[0]}")
    raise UsageError(f"{origin}: {len(lines)} errors\n" + "\n".join(f"  {line}" for line in lines))


def _line(error: ErrorDetails, overridden: Sequence[str]) -> str:
    path = ".".join(map(str, error["loc"]))
    place = f"{path} (set by an override)" if any(f"{path}.".startswith(f"{o}.") for o in overridden) else path
    return f"{place}: {_explain(error)}" if place else _explain(error)


def _explain(error: ErrorDetails) -> str:
    message, kind = error["msg"], error["type"]
    if kind == "extra_forbidden":
        *section, key = error["loc"]
        known = list(_section(section).model_fields)
        guess = [*_elsewhere(str(key), error["input"]), *nearest(str(key), known)][:3]
        what = f"did you mean {' or '.join(map(repr, guess))}?" if guess else f"known here: {', '.join(known)}"
        return f"unknown key; {what}"
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind in ("model_type", "dict_type"):
        message = "must be a mapping"
    message = message.replace("Input should be", "must be")
    return f"{message}, got {_shown(error['input'])}"


def _shown(value: Any) -> str:
    kind = {str: "text", bool: "a boolean", int: "an integer", float: "a number", list: "a list", dict: "a mapping"}
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return "nothing" if value is None else f"{text} ({kind.get(type(value), type(value).__name__)})"


def _section(path: Sequence[int | str]) -> type[Section]:
    """The model that describes the part of a recipe at ``path``."""
    model: type[Section] = Recipe
    for key in path:
        if isinstance(key, str):
            model = section_in(model.model_fields[key].annotation)[0] or model
    return model


def _elsewhere(key: str, value: Any) -> list[str]:
    """Where else in a recipe such a key may stand, as dotted paths; [] if in more places than help."""
    inside = key
    while isinstance(value, Mapping) and len(value) == 1:
        ((name, value),) = value.items()
        inside += f".{name}"
    paths = [row["key"] for row in describe_schema() if ".N." not in row["key"]]
    for tail in (inside, key):
        found = [path for path in paths if path.endswith(f".{tail}")]
        if found:
            return found if len(found) <= 3 else []
    return []
