"""Leases over objects, worker processes, sandboxes and containers, within a coordinated capacity."""

from agentfly_core.resources.coordinator import InProcessCoordinator
from agentfly_core.resources.handle import Handle, RemoteTraceback
from agentfly_core.resources.lease import HeldLease
from agentfly_core.resources.local import ObjectHandle, ObjectProvider
from agentfly_core.resources.manager import ResourceManager
from agentfly_core.resources.redis_coordinator import RedisCoordinator
from agentfly_core.resources.signals import drain_on_sigterm
from agentfly_core.resources.worker import WorkerHandle, WorkerProvider

__all__ = [
    "Handle",
    "HeldLease",
    "InProcessCoordinator",
    "ObjectHandle",
    "ObjectProvider",
    "RedisCoordinator",
    "RemoteTraceback",
    "ResourceManager",
    "WorkerHandle",
    "WorkerProvider",
    "drain_on_sigterm",
]
