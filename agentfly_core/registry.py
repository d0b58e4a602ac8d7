"""Names to objects, with the distribution each came from."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentfly_core.types.errors import AgentFlyError, UnknownName, UsageError
from agentfly_core.types.protocols import Reward, TemplateFamily, Tool

if TYPE_CHECKING:
    from agentfly_core.plugins import PluginRecord

KINDS: dict[str, str] = {
    "tools": "a Tool (decorate the function with @tool)",
    "rewards": "a Reward (decorate the function with @reward) or a factory of one",
    "templates": "a TemplateFamily",
    "agents": "an Agent class",
    "environments": "a factory of environments",
    "algorithms": "a factory of algorithms",
    "backends": "a factory of generation backends",
    "learners": "a factory of learners",
    "resources": "a factory of resource providers",
    "trackers": "a factory of metric sinks",
}
"""What each ``register_*`` hook takes."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A name, what it stands for (an object or an import path), and who registered it."""

    kind: str
    name: str
    item: Any
    plugin: str
    distribution: str
    summary: str = ""

    @property
    def qualified(self) -> str:
        """``ENTRYPOINT:name``, which always works."""
        return f"{self.plugin}:{self.name}"

    @property
    def target(self) -> str:
        """Where another process finds the item: ``module:attribute`` or ``/path/file.py:attribute``.

        See ``import_target``.

        Raises:
            UsageError: the item is an instance.
        """
        if isinstance(self.item, str):
            return self.item
        if not inspect.isclass(self.item) and not inspect.isfunction(self.item):
            raise UsageError(f"{self.kind} {self.qualified!r} is no class or function: another process cannot find it")
        module: str = self.item.__module__
        path = getattr(sys.modules.get(module), "__file__", None)
        at = path if path and module.startswith(_FILE_PREFIX) else module
        return f"{at}:{self.item.__qualname__}"

    def resolve(self) -> Any:
        """The object; an import path is imported now.

        Raises:
            UsageError: the path leads nowhere or to something else than this kind.
        """
        if not isinstance(self.item, str):
            return self.item
        try:
            item = import_target(self.item)
        except AgentFlyError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"{self.kind} {self.qualified!r} of {self.distribution} cannot be imported from {self.item!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        check_item(self.kind, self.name, item)
        return item


class Registry:
    """All registrations of one kind."""

    def __init__(self, kind: str, records: Sequence[PluginRecord]) -> None:
        self.kind = kind
        self._records = records
        self._items: list[Registration] = []

    def add(self, registration: Registration) -> None:
        """Keep a registration; two of one short name may stand side by side."""
        self._items.append(registration)

    def __iter__(self) -> Iterator[Registration]:
        return iter(sorted(self._items, key=lambda r: (r.name, r.plugin)))

    def names(self) -> list[str]:
        """Short names, sorted."""
        return sorted({r.name for r in self._items})

    def find(self, name: str) -> Registration:
        """The registration that a short or qualified name means.

        Raises:
            UsageError: nothing has it (with the nearest names and the plugin that may have), or two have it.
        """
        found = [r for r in self._items if name in (r.name, r.qualified, f"{r.distribution}:{r.name}")]
        if len(found) == 1 or (found and _same_object(found)):
            return found[0]
        if found:
            unique = len({r.qualified for r in found}) == len(found)
            says = [r.qualified if unique else f"{r.distribution}:{r.name}" for r in found]
            choices = " or ".join(f"{s!r} ({r.distribution})" for s, r in zip(says, found, strict=True))
            raise UsageError(f"{self.kind}: the name {name!r} is registered {len(found)} times; say {choices}")
        known = [r.qualified for r in self._items] if ":" in name else self.names()
        raise UnknownName(self.kind.rstrip("s"), name, known, hint=self._hint(name))

    def get(self, name: str) -> Any:
        """``find(name).resolve()``."""
        return self.find(name).resolve()

    def _hint(self, name: str) -> str:
        owner, _, short = name.rpartition(":")
        broken = [r for r in self._records if r.state in ("failed", "incompatible", "disabled")]
        if owner:
            broken = [r for r in broken if owner in (r.name, r.distribution)]
        if sure := [r for r in broken if (self.kind, short) in r.attempted]:
            return f"(it would come from: {_causes(sure)})"
        if elsewhere := ELSEWHERE.get((self.kind, short)):
            return f"({elsewhere})"
        if known := PROVIDERS.get((self.kind, short)):
            return f"(install it with: pip install {known}{f'; not loaded: {_causes(broken)}' if broken else ''})"
        return f"(not loaded and may provide it: {_causes(broken)})" if broken else ""


def _causes(records: Sequence[PluginRecord]) -> str:
    return "; ".join(
        f"plugin {r.name!r} ({r.distribution}) is {r.state}{f': {r.error}' if r.error else ''}" for r in records
    )


def _same_object(found: Sequence[Registration]) -> bool:
    """Whether all of them mean one object: a user's file that imports a registered tool offers it once more."""
    try:
        return len({id(r.resolve()) for r in found}) == 1
    except AgentFlyError:
        return False


PROVIDERS: dict[tuple[str, str], str] = {
    ("templates", "qwen2.5"): "agentfly-plugin-templates-qwen",
    ("templates", "qwen3"): "agentfly-plugin-templates-qwen",
    ("templates", "qwen3-instruct-2507"): "agentfly-plugin-templates-qwen",
    ("environments", "rooms"): "agentfly-plugin-models-tiny",
    ("environments", "alfworld"): "agentfly-plugin-envs-alfworld",
    ("environments", "scienceworld"): "agentfly-plugin-envs-scienceworld",
    ("tools", "web_search"): "agentfly-plugin-tools-web",
    ("tools", "fetch_page"): "agentfly-plugin-tools-web",
    ("tools", "find_in_page"): "agentfly-plugin-tools-web",
    ("tools", "retrieve"): "agentfly-plugin-tools-web",
    ("tools", "code_interpreter"): "agentfly-plugin-tools-code",
    ("tools", "shell"): "agentfly-plugin-tools-code",
    ("rewards", "code_tests"): "agentfly-plugin-tools-code",
    ("rewards", "program_output"): "agentfly-plugin-tools-code",
    ("agents", "code"): "agentfly-plugin-tools-code",
    ("agents", "search-r1"): "agentfly-plugin-tools-web",
    ("rewards", "qa_exact_match"): "agentfly-plugin-tools-web",
    ("rewards", "qa_f1"): "agentfly-plugin-tools-web",
    ("rewards", "qa_cover_match"): "agentfly-plugin-tools-web",
    ("learners", "openrlhf"): "agentfly-plugin-learner-openrlhf",
}
"""Names that well-known plugins provide, so that an unknown name can say what to install."""


ELSEWHERE: dict[tuple[str, str], str] = {
    ("backends", "vllm"): "no plugin provides it yet: generate with the backend 'hf'; training with "
    "learner.name=openrlhf brings vLLM of its own",
}
"""Names that one may expect, and what to use instead."""


def check_item(kind: str, name: str, item: Any) -> None:
    """Refuse junk at registration, with what was expected.

    Raises:
        UsageError: the object is not what the kind's hook takes.
    """
    good = callable(item)
    if kind == "tools":
        good = isinstance(item, Tool) and not inspect.isclass(item)
    elif kind == "rewards":
        good = callable(item) or isinstance(item, Reward)
    elif kind == "templates":
        good = isinstance(item, TemplateFamily) and not inspect.isclass(item)
    elif kind == "agents":
        good = inspect.isclass(item) and all(hasattr(item, m) for m in ("start", "decide", "observe", "observe_step"))
    if not good:
        raise UsageError(f"register_{kind}: {name!r} must be {KINDS[kind]}, got {item!r:.200}")
    if kind == "agents" and not _takes_tools(item):
        raise UsageError(f"register_agents: {name!r} must have start(self, task, observation, tools)")


def _takes_tools(agent: Any) -> bool:
    """Whether the class's ``start`` can be called with a task, an observation and the tools."""
    bound = isinstance(inspect.getattr_static(agent, "start"), staticmethod | classmethod)
    try:
        inspect.signature(agent.start).bind(*([] if bound else [None]), None, None, {})
    except TypeError:
        return False
    return True


def describe(item: Any) -> str:
    """One line about a registered object."""
    if isinstance(item, str):
        return ""
    text = getattr(item, "description", None) or inspect.getdoc(item) or ""
    return str(text).strip().splitlines()[0] if str(text).strip() else ""


def import_target(target: str) -> Any:
    """What ``module:attribute`` or ``/path/file.py:attribute`` names. The attribute may be dotted.

    Raises:
        UsageError: the text has another form, or the file does not exist.
        Exception: whatever the module raises at import; AttributeError if it lacks the attribute.
    """
    module, _, attribute = target.rpartition(":")
    if not module.strip() or not attribute.strip():
        raise UsageError(f"{target!r} is no import path of the form 'module:attribute'")
    return functools.reduce(getattr, attribute.split("."), import_home(module))


def import_home(module: str) -> ModuleType:
    """The module of an import path: ``module`` or ``/path/file.py``.

    Raises:
        UsageError: the file does not exist.
        Exception: whatever the module raises at import.
    """
    return import_file(Path(module), reload=False) if module.endswith(".py") else importlib.import_module(module)


def import_file(path: Path, *, reload: bool = True) -> ModuleType:
    """Execute a Python file as a module whose name is the same in every process.

    Raises:
        UsageError: there is no such file.
        Exception: whatever it raises.
    """
    path = path.resolve()
    name = f"{_FILE_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    with _importing:  # another thread must not get the module while it is being executed
        if not reload and name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UsageError(f"{path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        previous = sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            if previous is not None:
                sys.modules[name] = previous
            raise
        return module


_importing = threading.RLock()
_FILE_PREFIX = "agentfly_user_"
"""Begins the module name of a user's own file."""
