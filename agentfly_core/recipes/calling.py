"""Calling a plugin's factory or function with a recipe's options, checked against its signature first."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from agentfly_core.types.errors import UnknownName, UsageError


def build(what: str, factory: Callable[..., Any], options: Mapping[str, Any], **offered: Any) -> Any:
    """``factory(**options)`` with those of ``offered`` that it takes; an option of the same name wins.

    Args:
        what: names the thing in messages: ``algorithm 'grpo'``.

    Raises:
        UsageError: an option it does not know, lacks or has the wrong type, or that it refuses itself. What an
            option leads to (a file that is not there) counts as refused.
    """
    offered = {name: value for name, value in offered.items() if takes(factory, name)}
    arguments = {**offered, **check_options(what, factory, options, supplied=offered)}
    try:
        return factory(**arguments)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(f"{what}: {' '.join(str(error).split()) or type(error).__name__}") from error
    except SystemExit as error:
        raise UsageError(f"{what} ends the process (sys.exit)") from error


def check_options(
    what: str, factory: Callable[..., Any], options: Mapping[str, Any], *, supplied: typing.Collection[str] = ()
) -> dict[str, Any]:
    """The options as the factory's annotations want them (a list becomes a tuple, say).

    Args:
        supplied: parameters that somebody else fills in.

    Raises:
        UsageError: see ``build``.
    """
    parameters, open_ended = _parameters(factory)
    known = [name for name in parameters if name not in supplied]
    for name in options:
        if name not in parameters and not open_ended:
            raise UnknownName(f"option of {what}", name, known)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in options and name not in supplied:
            raise UsageError(f"{what} needs the option {name!r}")
    hints = _hints(factory)
    return {name: _typed(what, name, value, hints.get(name, Any)) for name, value in options.items()}


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the function has a parameter of this very name."""
    return name in _parameters(function)[0]


def _parameters(function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Parameters that can be given by name, and whether there is a ``**kwargs``."""
    every = inspect.signature(function).parameters.values()
    named = {p.name: p for p in every if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, any(p.kind is p.VAR_KEYWORD for p in every)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        own_init = inspect.isclass(function) and not dataclasses.is_dataclass(function)
        return typing.get_type_hints(function.__init__ if own_init else function)
    except (NameError, TypeError, AttributeError):  # names imported for type checking only: nothing to check against
        return {}


def _typed(what: str, name: str, value: Any, hint: Any) -> Any:
    try:
        adapter = TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError):  # a type that no recipe can spell
        return value
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].replace("Input should be", "must be").replace("Extra inputs are not permitted", "unknown")
        if inspect.isclass(hint) and issubclass(hint, BaseModel):  # an option with parts of its own
            name, value = ".".join(map(str, (name, *first["loc"]))), first["input"]
        raise UsageError(f"option {name!r} of {what}: {reason}, got {value!r:.80}") from error
    except TypeError as error:
        raise UsageError(f"option {name!r} of {what}: {error}, got {value!r:.80}") from error
