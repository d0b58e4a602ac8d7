"""The command line of the installed OpenRLHF: its own parser and checks, taken from its source and run on their own.

``openrlhf/cli/train_ppo_ray.py`` keeps both under ``if __name__ == "__main__"`` in a module that imports ray, torch and
vLLM. Only that block is executed here, so that flags can be checked on a machine that has none of them. Whatever is not
as expected there means a version that this plugin does not know: one error, before anything starts.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, NoReturn

from agentfly_core.types import MissingDependency, UsageError

KNOWN_VERSION = "0.11.2"
REQUIREMENT = f"openrlhf[vllm]=={KNOWN_VERSION}"
"""What to install, in pip's words."""

SCRIPT = "cli/train_ppo_ray.py"
_NAMES = {"parser", "args", "argparse", "os", "datetime", "hierarchize", "print", *dir(builtins)}


@lru_cache(maxsize=1)
def installed() -> Upstream:
    """The installed OpenRLHF, which is not imported.

    Raises:
        MissingDependency: it is not installed.
        UsageError: it is a version that this plugin does not know.
    """
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or spec.origin is None:  # a mere folder of this name has no origin
        raise MissingDependency("openrlhf", "the learner 'openrlhf'", REQUIREMENT)
    try:
        version = importlib.metadata.version("openrlhf")
    except importlib.metadata.PackageNotFoundError:
        version = f"in {Path(spec.origin).parent}"
    return Upstream(Path(spec.origin).parent, version)


@dataclass(frozen=True)
class Parsed:
    """Flags after OpenRLHF's parser and checks: its nested namespace, and what it said about them."""

    namespace: SimpleNamespace
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Upstream:
    """The parser and the checks in one OpenRLHF package folder."""

    folder: Path
    version: str

    @cached_property
    def flags(self) -> dict[str, argparse.Action]:
        """Every flag by its name without dashes."""
        parser = self._parser()
        every = {option: action for action in parser._actions for option in action.option_strings}
        return {option[2:]: action for option, action in every.items() if option not in ("-h", "--help")}

    def parse(self, argv: Sequence[str]) -> Parsed:
        """What ``train_ppo_ray`` would start with, given these arguments.

        Raises:
            UsageError: OpenRLHF refuses them.
        """
        flat, unknown = self._parser().parse_known_args(list(argv))
        if unknown:
            raise UsageError(f"OpenRLHF {self.version} has no flag {unknown[0]}")
        said: list[str] = []
        scope = {"args": flat, "hierarchize": self._hierarchize, "print": lambda *text: said.append(" ".join(text))}
        try:
            exec(self._code.check, scope)
        except AssertionError as error:
            raise UsageError(f"OpenRLHF {self.version} refuses these options: {error}") from error
        return Parsed(scope["args"], [_plain(text) for text in said])  # type: ignore[arg-type]

    @cached_property
    def _code(self) -> _Code:
        path = self.folder / SCRIPT
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError) as error:
            self._refuse(f"cannot be read: {error}")
        main = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == _MAIN]
        self._expect(len(main) == 1, f"has no single `if {_MAIN}`")
        return self._divide(main[0].body)

    def _divide(self, body: Sequence[ast.stmt]) -> _Code:
        """The block's statements: those that build the parser, and those that check what it parsed."""
        text = [ast.unparse(statement) for statement in body]
        self._expect(_PARSE in text, f"has no `{_PARSE}`")
        at = text.index(_PARSE)
        building, checking = list(body[:at]), list(body[at + 1 :])
        self._expect(text[:1] == [_BEGIN] and at > 100, f"does not begin with `{_BEGIN}` and the flags")
        self._expect(text[-1] == "train(args)", "does not end with `train(args)`")
        self._expect(text[at + 1 : at + 3] == _HIERARCHY, "does not begin its checks with `hierarchize`")
        acting = [n for n in checking if isinstance(n, ast.If) and ast.unparse(n.test) == "args.use_ms"]
        self._expect(len(acting) == 1, "treats --use_ms in another way")
        # Only checks are wanted: not the import, the hub that --use_ms puts in place, nor the training.
        checking = [n for n in checking[1:-1] if n not in acting]
        for statement in (*building, *checking):
            self._expect(not _foreign(statement), f"uses {', '.join(_foreign(statement))} among its flags")
        return _Code(_compiled(building, self.folder), _compiled(checking, self.folder))

    def _parser(self) -> argparse.ArgumentParser:
        scope: dict[str, Any] = {"argparse": argparse, "os": os, "datetime": datetime}
        exec(self._code.build, scope)
        parser: argparse.ArgumentParser = scope["parser"]
        parser.allow_abbrev = False  # or `--ds.zero` would silently be another flag
        parser.error = _refuse_argument  # type: ignore[method-assign]
        return parser

    @cached_property
    def _hierarchize(self) -> Callable[[argparse.Namespace], SimpleNamespace]:
        """OpenRLHF's own function from dotted to nested names; its module imports nothing else."""
        spec = importlib.util.spec_from_file_location("_openrlhf_config", self.folder / "utils/config.py")
        if spec is None or spec.loader is None:
            self._refuse("has no utils/config.py beside it")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            function: Callable[[argparse.Namespace], SimpleNamespace] = module.hierarchize
        except Exception as error:
            self._refuse(f"has another utils/config.py beside it: {type(error).__name__}: {error}")
        return function

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._refuse(otherwise)

    def _refuse(self, reason: str) -> NoReturn:
        raise UsageError(
            f"OpenRLHF {self.version} is a version that agentfly-plugin-learner-openrlhf does not know: its {SCRIPT} "
            f"{reason}. Install a known one, pip install '{REQUIREMENT}', or a newer plugin"
        )


@dataclass(frozen=True)
class _Code:
    build: CodeType
    check: CodeType


_MAIN = "__name__ == '__main__'"
_BEGIN = "parser = argparse.ArgumentParser()"
_PARSE = "args = parser.parse_args()"
_HIERARCHY = ["from openrlhf.utils.config import hierarchize", "args = hierarchize(args)"]


def _foreign(statement: ast.stmt) -> list[str]:
    """Names that a statement reads and that will not be there, and imports."""
    nodes = list(ast.walk(statement))
    made = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)} | {"threshold"}
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    imports = {ast.unparse(n) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)}
    return sorted((read - made - _NAMES) | imports)


def _compiled(statements: Sequence[ast.stmt], folder: Path) -> CodeType:
    return compile(ast.Module(list(statements), []), str(folder / SCRIPT), "exec")


def _refuse_argument(message: str) -> NoReturn:
    raise UsageError(f"learner.options: OpenRLHF refuses a flag: {message}")


def _plain(text: str) -> str:
    return text.removeprefix("[Warning]").strip()


def arguments(flags: Mapping[str, Any]) -> Iterator[str]:
    """Flags as command-line arguments: true is the bare flag, false and None leave it out, a list gives several."""
    for name, value in flags.items():
        if value is True:
            yield f"--{name}"
        elif isinstance(value, list | tuple):
            yield from (f"--{name}", *map(_text, value))
        elif value is not None and value is not False:
            yield f"--{name}={_text(value)}"


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
