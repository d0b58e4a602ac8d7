"""Where recipes and models are found: files, and names that installed packages offer."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

from agentfly_core.types import AgentFlyError, UnknownName, UsageError

RECIPES = "agentfly.recipes"
MODELS = "agentfly.models"

_OFFERED_BY = {
    "tiny": "agentfly-plugin-models-tiny",
    "code": "agentfly-plugin-tools-code",
    "alfworld": "agentfly-plugin-envs-alfworld",
    "scienceworld": "agentfly-plugin-envs-scienceworld",
}
"""Packages of the project that offer recipes and models under these names."""


def find_recipe(target: str | Path) -> Path:
    """The recipe file that a path, or ``ENTRY:FILE`` (without suffix) of an installed package, means.

    Raises:
        UsageError: there is none.
    """
    text = str(target)
    entry, colon, file = text.partition(":")
    if not colon or isinstance(target, Path) or Path(text).exists() or "/" in entry:
        return Path(text).expanduser()
    folder = _package_folder(_entry_point(RECIPES, entry, "recipe package"))
    path = folder / f"{file}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        raise UnknownName(f"recipe of {entry!r}", file, known)
    return path


def offered_recipes() -> list[dict[str, str]]:
    """name, distribution and first sentence of every recipe that installed packages offer; a broken package's error."""
    rows = []
    for entry in sorted(importlib.metadata.entry_points(group=RECIPES), key=lambda e: e.name):
        try:
            files = sorted(_package_folder(entry).glob("*.yaml"))
        except UsageError as error:
            rows.append({"name": entry.name, "distribution": _distribution(entry), "about": f"broken: {error}"})
            continue
        rows += [
            {"name": f"{entry.name}:{f.stem}", "distribution": _distribution(entry), "about": _about(f)} for f in files
        ]
    return rows


def _about(recipe: Path) -> str:
    """The first sentence of the comment that begins the file, of which indented lines (commands) are no part."""
    lines = recipe.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: re.match(r"# ?\S", line), lines)
    text = " ".join(line.lstrip("# ").rstrip() for line in comment)
    return re.split(r"(?<=[.!?])\s+(?![a-z])", text)[0]


def offered_models() -> set[str]:
    """Names of the models that installed packages offer."""
    return {entry.name for entry in importlib.metadata.entry_points(group=MODELS)}


def find_model(name: str, base: Path) -> str:
    """The model folder that a recipe's ``model.path`` means, or the hub id as it is.

    In order: a name that a package offers, a folder relative to the recipe, one relative to the working directory.

    Raises:
        UsageError: it has the form of a path, or is a known name, and leads nowhere.
    """
    if name in offered_models():
        return _offered_model(name)
    given = Path(name).expanduser()
    for folder in (base / given, Path.cwd() / given):
        if folder.is_dir():
            return str(folder.resolve())
    if name == "tiny":
        raise UsageError(f"model.path: {name!r} comes from a package: pip install {_OFFERED_BY[name]}")
    if given.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UsageError(f"model.path: there is no model folder {name!r} (from {base} or {Path.cwd()})")
    return name


def find_file(name: str, base: Path) -> Path:
    """The file that a recipe's data means: relative to the recipe, or else to the working directory, so that a
    packaged recipe can be given the user's own. If neither is there, the first."""
    given = Path(name).expanduser()
    beside, here = (base / given).resolve(), (Path.cwd() / given).resolve()
    return here if here.is_file() and not beside.exists() else beside


def _offered_model(name: str) -> str:
    entry = _entry_point(MODELS, name, "model")
    what = f"model {name!r} ({_distribution(entry)})"
    try:
        folder = entry.load()()
    except AgentFlyError:
        raise
    except Exception as error:
        raise UsageError(f"{what} cannot be had: {type(error).__name__}: {error}") from error
    if not isinstance(folder, str | Path) or not Path(folder).is_dir():
        raise UsageError(f"{what}: {entry.value} must return a model folder, got {folder!r:.200}")
    return str(folder)


def _entry_point(group: str, name: str, what: str) -> importlib.metadata.EntryPoint:
    every = importlib.metadata.entry_points(group=group)
    found = {entry.value: entry for entry in every if entry.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(f"{what} {name!r} is offered by {' and by '.join(map(_distribution, found.values()))}")
    hint = f"(install it with: pip install {_OFFERED_BY[name]})" if name in _OFFERED_BY else ""
    raise UnknownName(what, name, {entry.name for entry in every}, hint=hint)


def _package_folder(entry: importlib.metadata.EntryPoint) -> Path:
    try:
        spec = importlib.util.find_spec(entry.value)
    except Exception as error:
        raise UsageError(f"recipes of {_distribution(entry)}: {entry.value!r} cannot be imported: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"recipes of {_distribution(entry)}: {entry.value!r} is no package")
    return Path(next(iter(spec.submodule_search_locations)))


def _distribution(entry: Any) -> str:
    return entry.dist.name if entry.dist else str(entry.value)
