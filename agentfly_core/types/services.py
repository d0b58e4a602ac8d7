"""The extension points around the chains as Protocols: learning, resources, capacity, metrics.

Plugins need not inherit from anything here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from agentfly_core.types.batches import AdvantageOutput, LossOutput, Needs, TrainBatch
from agentfly_core.types.resources import CoordinatorStatus, Isolation, ResourceSpec, Ticket

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Algorithm(Protocol):
    """Advantages and a loss: data plus pure functions over tensors."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Needs: ...

    def advantages(self, batch: TrainBatch) -> AdvantageOutput:
        """Advantages of the whole update batch, (B, T-1)."""
        ...

    def policy_loss(
        self,
        logp: Tensor,
        old_logp: Tensor,
        rollout_logp: Tensor | None,
        advantages: Tensor,
        mask: Tensor,
        *,
        token_count: int,
        nonempty_count: int,
        chain_count: int,
        scale: float = 1.0,
        chain: Tensor | None = None,
    ) -> LossOutput:
        """Loss of some rows of an optimizer step; the losses of all its micro-batches add up to the step's.

        Args:
            logp: (R, T-1), the variable of the gradient. R rows of the batch, the rows of a chain together.
            old_logp, rollout_logp, advantages: (R, T-1).
            mask: (R, T-1) bool.
            token_count: sampled tokens of the whole optimizer step, over all ranks.
            nonempty_count: its chains with at least one sampled token.
            chain_count: all its real chains, empty and unscored ones too, padding rows never.
            scale: multiplies the result (ranks times accumulation steps).
            chain: (R,) which chain each row belongs to; None means that every row is a chain of its own.
        """
        ...


class Lease(Protocol):
    """A resource held for a while."""

    @property
    def spec(self) -> ResourceSpec: ...
    @property
    def resource(self) -> Any:
        """The provider's handle, for ``worker`` the object's proxy.

        Raises:
            LeaseLost: the lease ran out or its instance died.
        """
        ...


class ResourceManager(Protocol):
    """Hands out warm, isolated instances within a coordinated capacity."""

    def lease(self, spec: ResourceSpec, *, owner: str) -> AbstractAsyncContextManager[Lease]:
        """Wait in order for capacity, then hold an instance; it is reset, kept warm or replaced on exit.

        Raises:
            ResourceError: it cannot be started, or its isolation is weaker than the spec demands.
        """
        ...

    async def close(self) -> None:
        """Stop every instance."""
        ...


@runtime_checkable
class ResourceProvider(Protocol):
    """Starts and stops one kind of resource."""

    @property
    def isolation(self) -> Isolation: ...

    async def start(self, spec: ResourceSpec, *, run_id: str) -> Any:
        """A new instance. Cancelling the call leaves nothing behind."""
        ...

    async def health(self, instance: Any) -> bool:
        """Whether it can be handed out."""
        ...

    async def reset(self, instance: Any) -> bool:
        """Make it as new; False says that it must be replaced."""
        ...

    async def stop(self, instance: Any) -> None:
        """End it and everything it started; calling it twice does nothing."""
        ...

    async def runs(self) -> frozenset[str]:
        """Ids of the runs of which something exists on this machine, live ones too (see ``sweep``).

        The manager sweeps those that it knows to have crashed: a run's mark lies on this machine and nobody holds it.
        """
        ...

    async def sweep(self, run_id: str) -> int:
        """End what a crashed run left; how many there were."""
        ...


@runtime_checkable
class Fenced(Protocol):
    """An instance that is told how long its lease holds; past that it refuses every call with ``LeaseLost``.

    Attributes:
        valid_until: in seconds of ``time.monotonic()``. The manager moves it on with each renewal.
    """

    valid_until: float


@runtime_checkable
class Coordinator(Protocol):
    """Counts capacity, in this process or across a cluster. First come, first served within a kind.

    A *ticket* is a share of the capacity for a lease. A *holder* (a process, by its run id) may keep shares for idle
    instances: they count as well, the holder's own grants may use them up (``Ticket.claimed``), and they are called
    back when anyone else waits.
    """

    async def acquire(
        self, kind: str, owner: str, *, amount: int = 1, ttl: float = 60.0, holder: str = "", reuse: bool = False
    ) -> Ticket:
        """Wait for ``amount`` of ``kind``. Cancelling the wait leaves no trace.

        Args:
            owner: who wants it, for people to read.
            ttl: seconds after which the ticket is free again unless it is renewed.
            holder: whose idle shares may be used up, where nothing else is free.
            reuse: use up the holder's idle shares of this kind first.

        Raises:
            ResourceError: more than the whole capacity is asked for, or the coordinator cannot be reached.
        """
        ...

    async def try_acquire(
        self, kind: str, owner: str, *, ttl: float = 60.0, holder: str = "", idle: bool = False
    ) -> Ticket | None:
        """One unit at once or not at all: of what is free while nobody waits, or of the holder's idle shares."""
        ...

    async def renew(self, ticket: Ticket, *, ttl: float = 60.0) -> Ticket:
        """Hold on for ``ttl`` more seconds.

        Raises:
            LeaseLost: it has expired or was released.
        """
        ...

    async def release(self, ticket: Ticket, *, idle: bool = False) -> bool:
        """Give it back; doing so twice, or after expiry, does nothing.

        Args:
            idle: its share stays with its holder for an idle instance.

        Returns:
            whether the holder has it as an idle share now.
        """
        ...

    async def attend(self, holder: str, *, ttl: float = 60.0, patience: float = 0.0) -> Mapping[str, int]:
        """Say that the holder lives, and wait up to ``patience`` seconds for its idle shares to be wanted by others.

        The first call registers it; one that is not heard of for ``ttl`` seconds loses its idle shares.

        Returns:
            kind -> how many shares to give up: stop an instance and release the ticket of
            ``try_acquire(..., idle=True)`` for each.

        Raises:
            LeaseLost: it had lost its idle shares; whatever is idle must be stopped. It is registered anew.
        """
        ...

    async def leave(self, holder: str) -> None:
        """Forget a holder and its idle shares."""
        ...

    async def close(self) -> None:
        """Free connections; what is held stays held until it expires."""
        ...

    async def status(self) -> list[CoordinatorStatus]: ...


@runtime_checkable
class MetricSink(Protocol):
    """Where a run's numbers go besides ``metrics.jsonl``."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Learner(Protocol):
    """Drives training of a recipe. Gets the loaded recipe; see ``recipes.load.LoadedRecipe``.

    It may also have ``dry_run(recipe)``, which returns what it would do as plain data for ``agentfly train --dry-run``,
    and ``check_installed(recipe)``, which raises ``MissingDependency`` before a run folder is made; a dry run does
    without it.
    """

    def check(self, recipe: Any) -> list[str]:
        """Reasons, each naming a field and a way out, for which it cannot honour the recipe; [] if it can."""
        ...

    def train(self, recipe: Any, folder: Any, *, resume: bool = False, stop: threading.Event | None = None) -> None:
        """Train into the run folder until the recipe's last step or until ``stop`` is set.

        Args:
            folder: a ``runs.RunFolder``.
            resume: go on from the folder's latest checkpoint.
            stop: set from another thread or a signal handler: end the step in hand, save, return.
        """
        ...
