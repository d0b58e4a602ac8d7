"""Recipe files to plain data, and ``key=value`` overrides on top."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from agentfly_core.recipes.schema import Recipe
from agentfly_core.types.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

MAX_PARTS = 100_000
"""Lists and mappings of a recipe, anchors written out."""


class _Loader(yaml.SafeLoader):
    """YAML with the scalars of YAML 1.2's core schema, and without duplicate keys.

    PyYAML itself follows YAML 1.1, where ``1e-4`` is text, ``no`` is false and ``1:30`` is ninety.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML copies it on the first add)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a name", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge keys (``<<``) are no part of YAML 1.2: they stay ordinary keys."""


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _firsts = [c if c != "\0" else "" for c in _first]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _firsts)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    return int(text, 0) if text.lstrip("+-")[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def read_recipe_file(path: Path) -> dict[str, Any]:
    """The mapping in a .yaml, .yml or .toml file.

    Raises:
        UsageError: it is missing, unreadable, malformed (with the line) or no mapping.
    """
    if path.suffix not in (".yaml", ".yml", ".toml"):
        raise UsageError(f"{path}: a recipe is a .yaml, .yml or .toml file")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"recipe {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"recipe {path} cannot be read: {error}") from error
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else parse_yaml(text)
    except (ValueError, RecursionError) as error:  # TOML's own errors are ValueErrors
        raise UsageError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}{_where(error)}: {_problem(error)}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a recipe is a mapping of sections, got {_kind(data)}")
    return data


def parse_yaml(text: str) -> Any:
    """One YAML document as plain data.

    Raises:
        yaml.YAMLError: it is malformed, nested too deeply or without end, or a value is not what its tag says
            (``!!int x``).
    """
    try:
        data = yaml.load(text, _Loader)
        _refuse_endless(data, set(), iter(range(MAX_PARTS)))
        return data
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except (ValueError, KeyError, AttributeError) as error:  # PyYAML's constructors trust explicit tags
        raise yaml.YAMLError(f"a value is not what its tag says ({error})") from error


def _refuse_endless(value: Any, above: set[int], budget: Iterator[int]) -> None:
    """Anchors can make a few lines as long as one likes, and a part of itself."""
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        raise yaml.YAMLError("an anchor contains itself")
    if next(budget, None) is None:
        raise yaml.YAMLError(f"it has more than {MAX_PARTS} parts, anchors written out")
    above.add(id(value))
    for part in value.values() if isinstance(value, dict) else value:
        _refuse_endless(part, above, budget)
    above.discard(id(value))


def is_override(text: str) -> bool:
    """Whether it begins with a key of a recipe and ``=``: ``rollout.temperature=0.5``."""
    key, equals, _ = text.partition("=")
    return bool(equals) and key.partition(".")[0] in Recipe.model_fields


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Set ``a.b.0.c=VALUE`` (VALUE is YAML) inside ``data``; the dotted paths that were set.

    Missing sections are made; a number indexes a list, its length appends.

    Raises:
        UsageError: no ``=``, a value that is no YAML, or a path through something that has no parts.
    """
    paths = []
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.split(".")
        if not equals or not all(keys):
            raise UsageError(f"override {override!r} is not of the form key=value (train.steps=20)")
        try:
            value = parse_yaml(text)
        except yaml.YAMLError as error:
            raise UsageError(f"override {override!r}: {_problem(error)}") from error
        target: Any = data
        for depth, key in enumerate(keys[:-1]):
            target = _enter(target, key, keys[: depth + 1], override, new=[] if keys[depth + 1].isdecimal() else {})
        _assign(target, keys[-1], value, override)
        paths.append(path)
    return paths


def _enter(target: Any, key: str, path: Sequence[str], override: str, *, new: Any) -> Any:
    index = _index(target, key, override)
    missing = index >= len(target) if isinstance(target, list) else target.get(index) is None
    value = new if missing else target[index]
    if isinstance(value, str):  # `learner: local` is short for `learner: {name: local}`
        value = {"source" if path[-1] in ("train", "eval", "data") else "name": value}
    if not isinstance(value, dict | list):
        raise UsageError(f"override {override!r}: {'.'.join(path)} is {value!r} and has no parts")
    _assign(target, key, value, override)
    return value


def _assign(target: Any, key: str, value: Any, override: str) -> None:
    index = _index(target, key, override)
    if isinstance(target, list) and index == len(target):
        target.append(value)
    else:
        target[index] = value


def _index(target: Any, key: str, override: str) -> Any:
    if not isinstance(target, list):
        return key
    if not key.isdecimal() or int(key) > len(target):
        raise UsageError(f"override {override!r}: {key!r} is no place in a list of {len(target)}")
    return int(key)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
