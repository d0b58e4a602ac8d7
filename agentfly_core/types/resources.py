"""What is leased, and what a lease is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from agentfly_core.types.errors import UsageError

LEAST_CPU = 0.01
"""Cores: a control group counts in parts of a tenth of a second, of which a hundredth is the least."""


class Isolation(IntEnum):
    """How well a resource is fenced off, weakest first. A spec's ``min_isolation`` fails closed."""

    NONE = 0
    """An object in this process."""
    PROCESS = 1
    """A process of its own: a crash stays inside, files and network are open."""
    SANDBOX = 2
    """A process without host files and network (bubblewrap, Landlock and seccomp)."""
    CONTAINER = 3
    """A container with its own file system, network and limits."""


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """What is wanted. The whole value is its identity: only equal specs share a warm instance.

    Attributes:
        kind: name of the provider (``worker``, ``process``, ``docker``, ...).
        target: for ``worker``, the ``module:factory`` to call in the worker process.
        options: arguments of the factory or provider, as sorted (name, value) pairs of hashable values;
            see ``make``.
        image, command, environment, mounts, network: of a container or sandbox. Network is off by default.
            A mount is (path on the host, path inside, whether it may be written to).
        cpu: cores, at least 0.01. memory: MiB. pids: processes. disk: MiB. None leaves it to the provider.
        min_isolation: a provider that cannot give at least this refuses.
        setup: shell command run once after start.

    Raises:
        UsageError: a limit that is none.
    """

    kind: str
    target: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    image: str = ""
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()
    network: bool = False
    cpu: float | None = None
    memory: int | None = None
    pids: int | None = None
    disk: int | None = None
    min_isolation: Isolation = Isolation.NONE
    setup: str = ""

    def __post_init__(self) -> None:
        check_limits(self.cpu, memory=self.memory, pids=self.pids, disk=self.disk)

    @classmethod
    def make(
        cls, kind: str, target: str = "", *, options: Mapping[str, Any] | None = None, **fields: Any
    ) -> ResourceSpec:
        """A spec from plain mappings: dicts, lists and sets inside ``options`` are frozen."""
        return cls(kind, target, options=tuple(sorted((k, _freeze(v)) for k, v in (options or {}).items())), **fields)

    def arguments(self) -> dict[str, Any]:
        """The options as keyword arguments: dicts, sets and lists again (a tuple comes back as a list)."""
        return {k: _thaw(v) for k, v in self.options}


def check_limits(cpu: float | None, **whole: int | None) -> None:
    """Refuse what would not limit: the kernel and container engines take 0 or less for no limit at all.

    Args:
        cpu: cores. whole: limits that are whole numbers, by name. None is passed over.

    Raises:
        UsageError: naming the limit.
    """
    if cpu is not None and (isinstance(cpu, bool) or not LEAST_CPU <= cpu < math.inf):
        raise UsageError(f"cpu must be a number of cores, at least {LEAST_CPU}, got {cpu!r}")
    for name, value in whole.items():
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name} must be a whole number greater than 0, got {value!r}")


class _FrozenDict(tuple[tuple[str, Any], ...]):
    """A dict as sorted pairs: hashable, and never equal to a list of pairs."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is _FrozenDict and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((_FrozenDict, tuple(self)))


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _FrozenDict(sorted((k, _freeze(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, set | frozenset):
        return frozenset(_freeze(v) for v in value)
    hash(value)
    return value


def _thaw(value: Any) -> Any:
    if isinstance(value, _FrozenDict):
        return {k: _thaw(v) for k, v in value}
    if isinstance(value, tuple):
        return [_thaw(v) for v in value]
    if isinstance(value, frozenset):
        return set(value)
    return value


@dataclass(frozen=True, slots=True)
class Ticket:
    """A granted share of capacity. ``fence`` grows with every grant, so that a stale holder is told apart."""

    id: str
    kind: str
    owner: str
    amount: int
    fence: int
    expires_at: float
    """In the coordinator's own clock, seconds."""
    holder: str = ""
    """The process that it was granted to."""
    since: float = 0.0
    """When it was granted, in the coordinator's own clock, seconds."""
    claimed: tuple[tuple[str, int], ...] = ()
    """(kind, units) of its holder's idle shares that the grant used up: so many idle instances must be reused or
    stopped before another is started."""


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """A snapshot of one kind: granted, waiting and idle amounts, capacity (None = unlimited), the tickets held."""

    kind: str
    capacity: int | None
    granted: int
    waiting: int
    tickets: tuple[Ticket, ...] = field(default_factory=tuple)
    idle: int = 0
