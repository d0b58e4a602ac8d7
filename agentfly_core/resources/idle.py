"""Instances that wait for their next lease."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Collection
from typing import Any, TypeAlias

from agentfly_core.types import ResourceSpec

Identity: TypeAlias = tuple[ResourceSpec, str]


def identity_of(spec: ResourceSpec) -> Identity:
    """Equal only for the same values of the same types: 1, 1.0 and True are different options."""
    return spec, repr(spec.options)


class IdlePool:
    """Idle instances by the identity of their spec. Every method is one step for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: defaultdict[Identity, deque[tuple[int, Any]]] = defaultdict(deque)
        """Longest idle first."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def count(self, identity: Identity) -> int:
        """How many of an equal spec there are."""
        queue = self._waiting.get(identity)
        return len(queue) if queue else 0

    def by_kind(self) -> Counter[str]:
        """How many of each kind there are."""
        with self._lock:
            counts: Counter[str] = Counter()
            for identity, queue in self._waiting.items():
                counts[identity[0].kind] += len(queue)
            return counts

    def add(self, identity: Identity, instance: Any) -> None:
        """Put one in, as the one that was used last."""
        with self._lock:
            self._waiting[identity].append((next(self._numbers), instance))
            self._size += 1

    def remove(self, identity: Identity, instance: Any) -> bool:
        """Take this one out; False if it has gone."""
        with self._lock:
            queue = self._waiting.get(identity, deque())
            for entry in queue:
                if entry[1] is instance:
                    queue.remove(entry)
                    self._taken(identity)
                    return True
        return False

    def pop(self, identity: Identity) -> Any | None:
        """The one of an equal spec that was used last."""
        with self._lock:
            queue = self._waiting.get(identity)
            if not queue:
                return None
            instance = queue.pop()[1]
            self._taken(identity)
            return instance

    def oldest_kind(self, *, spare: Collection[Identity] = ()) -> str | None:
        """The kind of the one that ``pop_oldest`` would give if any kind were asked for."""
        with self._lock:
            identity = self._oldest(None, spare)
            return identity and identity[0].kind

    def pop_oldest(self, kind: str, *, spare: Collection[Identity] = ()) -> tuple[Identity, Any] | None:
        """The one of a kind that has been idle longest; those to ``spare`` only if there is no other."""
        with self._lock:
            identity = self._oldest(kind, spare)
            if identity is None:
                return None
            instance = self._waiting[identity].popleft()[1]
            self._taken(identity)
            return identity, instance

    def clear(self) -> list[tuple[Identity, Any]]:
        """Take all out."""
        with self._lock:
            entries = [(identity, instance) for identity, queue in self._waiting.items() for _, instance in queue]
            self._waiting.clear()
            self._size = 0
            return entries

    def _oldest(self, kind: str | None, spare: Collection[Identity]) -> Identity | None:
        found = [(i in spare, q[0][0], i) for i, q in self._waiting.items() if q and kind in (None, i[0].kind)]
        return min(found, key=lambda entry: entry[:2])[2] if found else None

    def _taken(self, identity: Identity) -> None:
        self._size -= 1
        if not self._waiting[identity]:
            del self._waiting[identity]
